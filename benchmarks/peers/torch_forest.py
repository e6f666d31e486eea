"""A round of DAeQuIL in the forest in eager PyTorch, run by benchmarks/on_q.py in its own environment.

    python benchmarks/peers/torch_forest.py FOLDER THREADS check|time

benchmarks/on_q.py writes the inputs to FOLDER: trees, demonstrations, weights, the steps of earlier rounds, settings,
and the minibatches of one step. `check` flies the given policies, takes that step, and writes the results to FOLDER.
`time` runs rounds from there on and prints JSON.

The forest and the round are those of `understudy.envs.forest` and `understudy.algorithms.on_q.daequil`, written for
speed without compilation: all flights step together, the expert is evaluated only where a tree is ahead, data are
normalized once, all minibatches of a round are drawn and gathered at once, a network is called once for all its inputs,
the critics of all states are one batched product, and the optimizer is fused. The anchor, which the settings switch
off, is left out.
"""

import json
import math
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch_off_q import Player, network

SIZE, STRIDE, HORIZON = 100.0, 5.0, 50
CHOICES = 181
ROUNDS = 2  # per repetition


class Forest:
    def __init__(self, trees: Tensor):
        self.x, self.y, self.radius = trees.T
        self.reach = torch.tensor([STRIDE / 2, STRIDE])
        self.headings = torch.linspace(0.0, math.pi, CHOICES)

    def blocked(self, x: Tensor, y: Tensor, heading: Tensor) -> Tensor:
        """Whether the middle or the end of a step lies inside a tree."""
        dx = (x[..., None] + self.reach * heading.cos()[..., None])[..., None] - self.x
        dy = (y[..., None] + self.reach * heading.sin()[..., None])[..., None] - self.y
        return (dx.square() + dy.square() < self.radius.square()).flatten(-2).any(-1)

    @torch.no_grad()
    def fly(self, act: Callable[[Tensor], Tensor], flights: int) -> tuple[Tensor, Tensor]:
        """(time, flights, 5) states and actions, and a mask of valid ones."""
        x, y, heading = (torch.full((flights,), start) for start in (SIZE / 2, 0.0, math.pi / 2))
        alive, pairs, real = torch.ones(flights, dtype=torch.bool), [], []
        for _ in range(HORIZON):
            obs = torch.stack([self.blocked(x, y, heading), x, y, heading], 1)
            chosen = act(obs)
            pairs.append(torch.cat([obs, chosen], 1))
            real.append(alive)
            heading = chosen[:, 0].clamp(0.0, math.pi)
            crash = self.blocked(x, y, heading)
            x, y = x + STRIDE * heading.cos(), y + STRIDE * heading.sin()
            alive = alive & ~(crash | (x < 0) | (x > SIZE) | (y >= SIZE))
            if not alive.any():
                break
        return torch.stack(pairs), torch.stack(real)

    def choices(self, obs: Tensor) -> Tensor:
        """(states, headings): where the expert may turn when a tree is ahead."""
        x, y, heading = (obs[:, i, None] for i in (1, 2, 3))
        away = (self.headings - heading).abs() >= math.pi / 4
        clear = away & ~self.blocked(x, y, self.headings)
        return torch.where(clear.any(1, keepdim=True), clear, away)

    def answer(self, obs: Tensor) -> Tensor:
        actions = obs[:, 3:].clone()
        ahead = obs[:, 0] > 0.5
        if ahead.any():
            actions[ahead] = self.headings[self.choices(obs[ahead]).float().multinomial(1)]
        return actions


def moments(pairs: Tensor) -> Tensor:
    """The flag, and how far the proposed heading is from the current one."""
    return torch.stack([pairs[..., 0], (pairs[..., 4] - pairs[..., 3]).abs()], -1)


class DAeQuIL:
    def __init__(self, saved: dict[str, np.ndarray], settings: dict):
        self.settings, self.batch = settings, settings["batch_size"]
        self.forest = Forest(torch.tensor(saved["trees"]))
        self.mean, self.std = torch.tensor(saved["obs_mean"]), torch.tensor(saved["obs_std"])
        self.center, self.scale = torch.tensor(saved["act_center"]), torch.tensor(saved["act_scale"])
        obs, act = torch.tensor(saved["demonstrated_obs"]), torch.tensor(saved["demonstrated_act"])
        self.demonstrations = torch.cat([(obs - self.mean) / self.std, (act - self.center) / self.scale], 1)
        self.metrics, self.rounds = torch.empty(0, 6), torch.empty(0, dtype=torch.long)
        self.policy = Player(network(saved, "policy"), settings["lr"], decay=settings["weight_decay"])
        self.best, self.payoff = [p.detach().clone() for p in self.policy.parameters], math.inf
        layers = range(len(settings["critic_hidden"]) + 1)
        # A layer's weights and biases of all rounds so far, stacked.
        self.weights = [torch.tensor(saved[f"critics_weight{i}"]) for i in layers]
        self.biases = [torch.tensor(saved[f"critics_bias{i}"])[:, None] for i in layers]
        self.remember(torch.tensor(saved["history_obs"]), torch.tensor(saved["history_round"]))

    def remember(self, obs: Tensor, rounds: Tensor) -> None:
        """A row is the standardised state, and the flag and the heading as the moments take them."""
        rows = torch.cat([(obs - self.mean) / self.std, obs[:, [0, 3]]], 1)
        self.metrics, self.rounds = torch.cat([self.metrics, rows]), torch.cat([self.rounds, rounds.long()])

    def keep(self, critic: nn.Sequential) -> None:
        """As the critic of the next round."""
        for i, layer in enumerate(critic[::2]):
            self.weights[i] = torch.cat([self.weights[i], layer.weight.detach().T[None]])
            self.biases[i] = torch.cat([self.biases[i], layer.bias.detach()[None, None]])

    def actor(self, net: nn.Sequential) -> Callable[[Tensor], Tensor]:
        """In the environment's own numbers."""
        return lambda obs: self.center + self.scale * net((obs - self.mean) / self.std).tanh()

    def critic_loss(self, critic: nn.Sequential, sides: Tensor) -> Tensor:
        """Of the learner's and the expert's states and actions, (2, batch, 5)."""
        sides.requires_grad_()
        costs = critic(moments(sides))[..., 0]
        (slope,) = torch.autograd.grad(costs.sum(), sides, create_graph=True)
        penalty = slope.square().sum((0, 2)).mean()
        return self.settings["gradient_weight"] * penalty - (costs[0] - costs[1]).mean()

    def costs(self, features: Tensor, rounds: Tensor) -> Tensor:
        """f_i, a row each by the critic of its own round i."""
        x = features[:, None]
        for i, (weights, biases) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = torch.baddbmm(biases.index_select(0, rounds), x.relu() if i else x, weights.index_select(0, rounds))
        return x

    def policy_loss(self, demonstrated: Tensor, visited: Tensor) -> Tensor:
        """Of minibatches, as indices."""
        shown, rows = self.demonstrations[demonstrated], self.metrics[visited]
        acts = self.policy.net(torch.cat([shown[:, :4], rows[:, :4]])).tanh()
        cloning = (acts[: self.batch] - shown[:, 4:]).square().sum(1).mean()
        swerve = (self.center + self.scale * acts[self.batch :] - rows[:, 5:]).abs()
        costs = self.costs(torch.cat([rows[:, 4:5], swerve], 1), self.rounds[visited])
        share = len(self.demonstrations) / (len(self.demonstrations) + len(self.metrics))
        return (1 - share) * costs.mean() + self.settings["cloning_weight"] * share * cloning

    def fresh(self) -> nn.Sequential:
        layers: list[nn.Module] = []
        sizes = [2, *self.settings["critic_hidden"], 1]
        for i, (inputs, outputs) in enumerate(pairwise(sizes)):
            layer = nn.Linear(inputs, outputs)
            nn.init.orthogonal_(layer.weight, 1.0 if i == len(sizes) - 2 else 2**0.5)
            nn.init.zeros_(layer.bias)
            layers += [layer, nn.ReLU()]
        return nn.Sequential(*layers[:-1])

    def best_response(self, critic: nn.Sequential, sides: Tensor, minibatches: Tensor) -> float:
        """Train the critic; its payoff at all of the round's states."""
        player = Player(critic, self.settings["lr"])
        for index in minibatches:
            player.move(self.critic_loss(critic, sides[:, index]))
        with torch.no_grad():
            learner, expert = critic(moments(sides))
        return (learner - expert).mean().item()

    def round(self, critic_steps: int, steps: int) -> None:
        pairs, real = self.forest.fly(self.actor(self.policy.net), self.settings["rollouts"])
        learner = pairs[real]
        obs = learner[:, :4]
        sides = torch.stack([learner, torch.cat([obs, self.forest.answer(obs)], 1)])
        critic = self.fresh()
        payoff = self.best_response(critic, sides, torch.randint(len(obs), (critic_steps, self.batch)))
        if payoff < self.payoff:
            self.payoff, self.best = payoff, [p.detach().clone() for p in self.policy.parameters]
        self.remember(obs, torch.full((len(obs),), len(self.weights[0])))
        self.keep(critic)
        demonstrated = torch.randint(len(self.demonstrations), (steps, self.batch))
        visited = torch.randint(len(self.metrics), (steps, self.batch))
        for indices in zip(demonstrated, visited, strict=True):
            self.policy.move(self.policy_loss(*indices))


def flat(tensors: list[Tensor]) -> Tensor:
    """In understudy's order: all weights, then all biases."""
    turned = [x.t().flatten() for x in tensors]
    return torch.cat([*turned[::2], *turned[1::2]])


def check(algorithm: DAeQuIL, saved: dict[str, np.ndarray]) -> dict[str, Tensor]:
    """What the given flights, states and minibatches come to."""
    lengths, heights = [], []
    for i in range(int(saved["policies"])):
        act = algorithm.actor(network(saved, f"policy{i}"))
        pairs, real = algorithm.forest.fly(act, algorithm.settings["rollouts"])
        last = real.sum(0) - 1
        end = pairs[last, torch.arange(pairs.shape[1])]
        lengths.append(last + 1)
        heights.append(end[:, 2] + STRIDE * end[:, 4].sin())
    obs, own, expert = (torch.tensor(saved[f"round_{name}"]) for name in ("obs", "act", "expert_actions"))
    sides = torch.stack([torch.cat([obs, own], 1), torch.cat([obs, expert], 1)])
    found = {"lengths": torch.stack(lengths), "heights": torch.stack(heights), "choices": algorithm.forest.choices(obs)}
    critic, minibatch = network(saved, "fresh"), torch.tensor(saved["critic_index"])
    loss = algorithm.critic_loss(critic, sides[:, minibatch[0]])
    found |= {"critic_loss": loss, "critic_gradient": flat(torch.autograd.grad(loss, list(critic.parameters())))}
    found["payoff"] = torch.tensor(algorithm.best_response(critic, sides, minibatch))
    algorithm.remember(obs, torch.full((len(obs),), len(algorithm.weights[0])))
    algorithm.keep(network(saved, "trained"))
    loss = algorithm.policy_loss(*(torch.tensor(saved[f"{name}_index"]) for name in ("demonstrated", "visited")))
    found |= {"policy_loss": loss}
    found["policy_gradient"] = flat(torch.autograd.grad(loss, algorithm.policy.parameters))
    return found


def main() -> None:
    folder, threads, task = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    saved = dict(np.load(folder / "round.npz"))
    algorithm = DAeQuIL(saved, json.loads((folder / "settings.json").read_text()))
    said: dict[str, float | str] = {"versions": f"torch={torch.__version__}"}
    if task == "check":
        found = {name: x.detach().numpy() for name, x in check(algorithm, saved).items()}
        np.savez(folder / "round-torch.npz", **found)
    else:
        settings = algorithm.settings
        algorithm.round(100, 100)
        began, worked = time.perf_counter(), time.process_time()
        for _ in range(ROUNDS):
            algorithm.round(settings["critic_steps"], settings["steps"])
        spent = time.perf_counter() - began
        said |= {"ms": spent / ROUNDS * 1e3, "share": (time.process_time() - worked) / spent}
        # A round that went astray would still be timed: say so instead.
        if not all(torch.isfinite(x).all() for x in [*algorithm.policy.parameters, *algorithm.weights]):
            sys.exit(f"the weights are not finite after {ROUNDS} rounds")
    print(json.dumps(said))


if __name__ == "__main__":
    main()
