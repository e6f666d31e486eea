"""A training step of AdVIL and of ValueDICE in eager PyTorch, run by benchmarks/off_q.py in its own environment.

    python benchmarks/peers/torch_off_q.py FOLDER DEVICE THREADS check|advil|valuedice

benchmarks/off_q.py writes the inputs to FOLDER: demonstrations, weights, settings and the random numbers of one step.
`check` takes that step and writes the results to FOLDER. An algorithm's name times its step and prints JSON.

The steps are those of `understudy.algorithms.off_q`, written for speed without compilation: a minibatch is one gather,
a network is called once for all its inputs, the optimizer is fused, and no number leaves the device.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

SECONDS = 2.0


def network(saved: dict[str, np.ndarray], name: str) -> nn.Sequential:
    """Understudy's MLP: ReLU between linear layers, whose weights PyTorch keeps transposed."""
    layers: list[nn.Module] = []
    for i in range(sum(key.startswith(f"{name}_weight") for key in saved)):
        weight, bias = saved[f"{name}_weight{i}"], saved[f"{name}_bias{i}"]
        layer = nn.Linear(*weight.shape)
        with torch.no_grad():
            layer.weight.copy_(torch.tensor(weight.T))
            layer.bias.copy_(torch.tensor(bias))
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class Player:
    """A network and how it moves: Adam, with a clipped gradient where a norm is given."""

    def __init__(self, net: nn.Sequential, lr: float, clip: float | None = None, decay: float = 0.0):
        self.net, self.clip = net, clip
        self.parameters = list(net.parameters())
        self.optimizer = torch.optim.AdamW(self.parameters, lr=lr, eps=1e-8, weight_decay=decay, fused=True)

    def move(self, loss: Tensor) -> None:
        self.optimizer.zero_grad()
        # The other player's weights are in the loss too; naming these spares their gradients.
        loss.backward(inputs=self.parameters)
        if self.clip is not None:
            nn.utils.clip_grad_norm_(self.parameters, self.clip)
        self.optimizer.step()

    @property
    def moment(self) -> Tensor:
        """Adam's first, in understudy's order: all weights, then all biases."""
        moments = [self.optimizer.state[p]["exp_avg"].T.flatten() for p in self.parameters]
        return torch.cat([*moments[::2], *moments[1::2]])


class Average:
    """The exponential average of weights that is handed over."""

    def __init__(self, parameters: list[Tensor], decay: float):
        self.parameters, self.decay, self.moves = parameters, decay, 0
        self.values = [p.detach().clone() for p in parameters]

    @torch.no_grad()
    def follow(self) -> None:
        decay = min(self.decay, (1 + self.moves) / (10 + self.moves))
        torch._foreach_lerp_(self.values, self.parameters, 1 - decay)
        self.moves += 1


def gradient_penalty(critic: nn.Sequential, between: Tensor, target: float) -> Tensor:
    between.requires_grad_()
    (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    return ((slope.square().sum(1) + 1e-12).sqrt() - target).square().mean()


def orthogonal_penalty(net: nn.Sequential, between: str) -> Tensor:
    total = torch.zeros((), device=net[0].weight.device)
    for layer in net[::2]:
        gram = layer.weight.T @ layer.weight if between == "inputs" else layer.weight @ layer.weight.T
        total = total + gram.square().sum() - gram.diagonal().square().sum()
    return total


class AdVIL:
    def __init__(self, saved: dict[str, np.ndarray], settings: dict, device: str):
        self.settings, self.device = settings, device
        self.obs, self.size, self.batch = saved["obs"].shape[1], len(saved["obs"]), settings["batch_size"]
        self.rows = torch.tensor(np.concatenate([saved["obs"], saved["act"]], 1), device=device)
        mean, std, center, scale = frame(saved)
        self.center = torch.tensor(np.concatenate([mean, center]), device=device)
        self.scale = torch.tensor(np.concatenate([std, scale]), device=device)
        policy = network(saved, "policy").to(device)
        self.policy = Player(policy, settings["policy_lr"], settings["clip"], settings["weight_decay"])
        self.critic = Player(network(saved, "critic").to(device), settings["critic_lr"], settings["clip"])
        self.ema_decay = Average(self.policy.parameters, settings["average"])

    def minibatch(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """The learner's (s, π(s)) and the expert's (s, a); a row is both, side by side."""
        expert = (self.rows[index] - self.center) / self.scale
        obs = expert[:, : self.obs]
        return torch.cat([obs, self.policy.net(obs)], 1), expert

    def payoff(self, learner: Tensor, expert: Tensor) -> Tensor:
        by_learner, by_expert = self.critic.net(torch.cat([learner, expert])).chunk(2)
        return by_learner.mean() - by_expert.mean()

    def penalty(self, learner: Tensor, expert: Tensor, mix: Tensor) -> Tensor:
        between = torch.lerp(expert, learner, mix)
        return gradient_penalty(self.critic.net, between, self.settings["gradient_target"])

    def critic_loss(self, learner: Tensor, expert: Tensor, mix: Tensor) -> Tensor:
        penalty = self.penalty(learner, expert, mix)
        return self.settings["gradient_weight"] * penalty - self.payoff(learner, expert)

    def policy_loss(self, learner: Tensor, expert: Tensor) -> Tensor:
        """Without the expert's side of the payoff, which the policy cannot change."""
        cloning = (learner - expert)[:, self.obs :].square().mean()
        regular = self.settings["orthogonal_weight"] * orthogonal_penalty(self.policy.net, "inputs")
        return self.critic.net(learner).mean() + self.settings["cloning_weight"] * cloning + regular

    def draw(self) -> tuple[Tensor, ...]:
        index = torch.randint(self.size, (self.batch,), device=self.device)
        return index, torch.rand(self.batch, 1, device=self.device)

    def step(self, index: Tensor, mix: Tensor) -> None:
        # The policy stays as it is until the critic has moved, so one pass of it serves both.
        learner, expert = self.minibatch(index)
        self.critic.move(self.critic_loss(learner.detach(), expert, mix))
        self.policy.move(self.policy_loss(learner, expert))
        self.ema_decay.follow()

    def values(self, index: Tensor, mix: Tensor) -> dict[str, Tensor]:
        learner, expert = (side.detach() for side in self.minibatch(index))
        return {"payoff": self.payoff(learner, expert), "penalty": self.penalty(learner, expert, mix)}


class ValueDICE:
    def __init__(self, saved: dict[str, np.ndarray], settings: dict, device: str):
        self.settings, self.device, self.batch = settings, device, settings["batch_size"]
        self.states, self.acts = saved["obs"].shape[1] + 1, saved["act"].shape[1]
        mean, std, center, scale = frame(saved)
        terminal = saved["terminal"]
        ends = np.count_nonzero(terminal)

        def column(values: np.ndarray) -> np.ndarray:
            return values.astype(np.float32)[:, None]

        # A row is (s, mark, a, s', mark', weight). The absorbing state is zero once normalised, and so is what is
        # done there: its rows hold the centers.
        following = np.where(terminal[:, None], mean, saved["next_obs"])
        weight = column(terminal | saved["known_next"])
        rows = [saved["obs"], column(terminal * 0), saved["act"], following, column(terminal), weight]
        absorbing = np.concatenate([mean, [1], center, mean, [1], [1]]).astype(np.float32)
        table = np.concatenate([np.concatenate(rows, 1), np.tile(absorbing, (ends, 1))])
        self.rows = torch.tensor(table.astype(np.float32), device=device)
        shift = np.concatenate([mean, [0], center, mean, [0], [0]]).astype(np.float32)
        stretch = np.concatenate([std, [1], scale, std, [1], [1]]).astype(np.float32)
        self.center, self.scale = torch.tensor(shift, device=device), torch.tensor(stretch, device=device)
        self.policy = Player(network(saved, "policy").to(device), settings["policy_lr"])
        self.critic = Player(network(saved, "critic").to(device), settings["critic_lr"])
        self.ema_decay = Average(self.policy.parameters, settings["average"])

    def minibatch(self, index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The expert's (s, a), the states s and s' one above the other, and the steps' weights."""
        row = (self.rows[index] - self.center) / self.scale
        expert, following, weight = row.split([self.states + self.acts, self.states, 1], 1)
        return expert, torch.cat([expert[:, : self.states], following]), weight[:, 0]

    def actor(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log standard deviation, before the tanh."""
        mean, raw = self.policy.net(states).chunk(2, 1)
        low, high = self.settings["log_std_min"], self.settings["log_std_max"]
        return mean, low + 0.5 * (high - low) * (raw.tanh() + 1)

    def acting_policy(self, states: Tensor, inside: Tensor) -> Tensor:
        """The states with their actions, which are zero in the absorbing state."""
        return torch.cat([states, inside.tanh() * (1 - states[:, -1:])], 1)

    def payoff(self, learner: Tensor, expert: Tensor, weight: Tensor) -> Tensor:
        discount = self.settings["discount"]
        f_start, f_next, f_expert = self.critic.net(torch.cat([learner, expert]))[:, 0].chunk(3)
        total = weight.sum()
        expert_side = (f_expert - discount * f_next + weight.log()).logsumexp(0) - total.log()
        return (1 - discount) * (f_start @ weight) / total - expert_side

    def penalty(self, learner: Tensor, expert: Tensor, mix: Tensor) -> Tensor:
        # The learner's (s', π(s')) of another step of the batch.
        between = torch.lerp(expert, learner[self.batch :].roll(1, 0), mix)
        return gradient_penalty(self.critic.net, between, self.settings["gradient_target"])

    def critic_loss(self, learner: Tensor, expert: Tensor, weight: Tensor, mix: Tensor) -> Tensor:
        penalty = self.penalty(learner, expert, mix)
        return self.settings["gradient_weight"] * penalty - self.payoff(learner, expert, weight)

    def policy_loss(self, learner: Tensor, expert: Tensor, weight: Tensor) -> Tensor:
        regular = self.settings["orthogonal_weight"] * orthogonal_penalty(self.policy.net, "outputs")
        return self.payoff(learner, expert, weight) + regular

    def draw(self) -> tuple[Tensor, ...]:
        index = torch.randint(len(self.rows), (self.batch,), device=self.device)
        mix = torch.rand(self.batch, 1, device=self.device)
        return index, mix, torch.randn(2, 2 * self.batch, self.acts, device=self.device)

    def step(self, index: Tensor, mix: Tensor, noise: Tensor) -> None:
        expert, states, weight = self.minibatch(index)
        # The policy stays as it is until the critic has moved: one pass of it serves both, with noise of their own.
        mean, log_std = self.actor(states)
        std = log_std.exp()
        with torch.no_grad():
            learner = self.acting_policy(states, mean + std * noise[0])
        self.critic.move(self.critic_loss(learner, expert, weight, mix))
        learner = self.acting_policy(states, mean + std * noise[1])
        self.policy.move(self.policy_loss(learner, expert, weight))
        self.ema_decay.follow()

    @torch.no_grad()
    def values(self, index: Tensor, mix: Tensor, noise: Tensor) -> dict[str, Tensor]:
        expert, states, weight = self.minibatch(index)
        mean, log_std = self.actor(states)
        learner = self.acting_policy(states, mean + log_std.exp() * noise[0])
        return {"payoff": self.payoff(learner, expert, weight)}


def frame(saved: dict[str, np.ndarray]) -> tuple[np.ndarray, ...]:
    """Mean and standard deviation of the states, center and half-range of the actions."""
    low, high = saved["low"], saved["high"]
    return saved["obs"].mean(0), saved["obs"].std(0) + np.float32(1e-3), (low + high) / 2, (high - low) / 2


ALGORITHMS = {"advil": AdVIL, "valuedice": ValueDICE}


def load(folder: Path, name: str, device: str) -> tuple[AdVIL | ValueDICE, dict[str, np.ndarray]]:
    saved = dict(np.load(folder / f"{name}.npz"))
    return ALGORITHMS[name](saved, json.loads((folder / f"{name}.json").read_text()), device), saved


def timed(algorithm: AdVIL | ValueDICE, steps: int) -> float:
    """Seconds for that many steps."""
    wait = torch.cuda.synchronize if algorithm.device == "cuda" else lambda: None
    wait()
    began = time.perf_counter()
    for _ in range(steps):
        algorithm.step(*algorithm.draw())
    wait()
    return time.perf_counter() - began


def main() -> None:
    folder, device, threads, task = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    if device == "cuda" and not torch.cuda.is_available():
        sys.exit("this PyTorch sees no CUDA device")
    said: dict[str, float | str] = {"versions": f"torch={torch.__version__}"}
    if task == "check":
        for name in ALGORITHMS:
            algorithm, saved = load(folder, name, device)
            draws = [torch.tensor(saved[key], device=device) for key in ("index", "mix", "noise") if key in saved]
            values = algorithm.values(*draws)
            algorithm.step(*draws)
            values |= {"critic_moment": algorithm.critic.moment, "policy_moment": algorithm.policy.moment}
            np.savez(folder / f"{name}-torch.npz", **{key: x.detach().cpu().numpy() for key, x in values.items()})
    else:
        if device == "cuda":
            torch.set_float32_matmul_precision("high")  # TF32, which JAX's own default is there
        algorithm, _ = load(folder, task, device)
        timed(algorithm, 20)
        steps, spent, worked = 0, 0.0, time.process_time()
        while spent < SECONDS:
            steps, spent = steps + 50, spent + timed(algorithm, 50)
        said |= {"ms": spent / steps * 1e3, "share": (time.process_time() - worked) / (spent * threads)}
        # A step that went astray would still be timed: say so instead.
        if not all(torch.isfinite(values).all() for values in algorithm.average.values):
            sys.exit(f"the weights of {task} are not finite after {steps} steps")
    print(json.dumps(said))


if __name__ == "__main__":
    main()
