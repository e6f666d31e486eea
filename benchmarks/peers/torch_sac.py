"""A gradient step of SAC in eager PyTorch, run by benchmarks/sac.py.

    python benchmarks/peers/torch_sac.py FOLDER DEVICE THREADS check|time plain|tuned

benchmarks/sac.py writes the inputs to FOLDER: replay buffer, weights, settings and the random numbers of one step.
`check` takes that step and writes the results to FOLDER. `time` times steps and prints JSON.

The step is that of `understudy.rl.sac`, in two versions. `plain` is written as in Stable-Baselines3: two critics called
one after the other, standard optimizers, a loop over the targets' parameters. `tuned` is as fast as possible without
compilation: the two critics are one batched product per layer, optimizers are fused, and each loss is differentiated
only with respect to its own parameters. In both, the replay buffer is on the device, a minibatch is one gather, one
pass of the actor serves its own loss and the temperature's, and no number leaves the device.
"""

import json
import math
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

SECONDS = 3.0


class Player:
    """Parameters and how they move: Adam."""

    def __init__(self, parameters: list[Tensor], lr: float, tuned: bool):
        self.parameters, self.tuned = [p.requires_grad_() for p in parameters], tuned
        self.optimizer = torch.optim.Adam(self.parameters, lr=lr, eps=1e-8, fused=tuned)

    def move(self, loss: Tensor) -> None:
        self.optimizer.zero_grad()
        # The other players' parameters are in the loss too; naming these spares their gradients.
        loss.backward(inputs=self.parameters if self.tuned else None)
        self.optimizer.step()

    @property
    def moment(self) -> Tensor:
        """Adam's first, in understudy's order: all weights, then all biases."""
        moments = [self.optimizer.state[p]["exp_avg"].flatten() for p in self.parameters]
        return torch.cat([*moments[::2], *moments[1::2]])


class SAC:
    def __init__(self, saved: dict[str, np.ndarray], settings: dict, device: str, tuned: bool):
        self.settings, self.device, self.tuned = settings, device, tuned

        def tensors(name: str) -> list[Tensor]:
            count = sum(key.startswith(f"{name}_weight") for key in saved)
            keys = [f"{name}_{kind}{i}" for i in range(count) for kind in ("weight", "bias")]
            return [torch.tensor(saved[key], device=device) for key in keys]

        self.rows = torch.tensor(saved["rows"], device=device)
        self.actor = Player(tensors("actor"), settings["lr"], tuned)
        critics = tensors("critics")
        if not tuned:  # each critic's own tensors, the first's before the second's
            critics = [x[i].clone() for i in range(2) for x in critics]
        self.critics = Player(critics, settings["lr"], tuned)
        self.targets = [x.detach().clone() for x in critics]
        log_temperature = torch.tensor(saved["log_temperature"], device=device)
        self.temperature = Player([log_temperature], settings["lr"], tuned)

    def act(self, obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """a = tanh(μ + σ ξ) and log π(a | s)."""
        w0, b0, w1, b1, w2, b2 = self.actor.parameters
        hidden = torch.addmm(b1, torch.addmm(b0, obs, w0).relu(), w1).relu()
        mean, log_std = torch.addmm(b2, hidden, w2).chunk(2, 1)
        log_std = log_std.clamp(-20, 2)
        inside = mean + log_std.exp() * noise
        slope = 2 * (math.log(2) - inside - torch.nn.functional.softplus(-2 * inside))
        return inside.tanh(), (-0.5 * noise.square() - log_std - 0.5 * math.log(2 * math.pi) - slope).sum(1)

    def values(self, parameters: list[Tensor], obs: Tensor, act: Tensor) -> Tensor:
        """Both critics' values of (s, a)."""
        if not self.tuned:
            return torch.stack([self.value(parameters[:6], obs, act), self.value(parameters[6:], obs, act)])
        w0, b0, w1, b1, w2, b2 = parameters
        x = torch.cat([obs, act], 1).expand(2, -1, -1)
        return torch.baddbmm(b2, torch.baddbmm(b1, torch.baddbmm(b0, x, w0).relu(), w1).relu(), w2)[..., 0]

    def value(self, parameters: list[Tensor], obs: Tensor, act: Tensor) -> Tensor:
        """One critic's values."""
        w0, b0, w1, b1, w2, b2 = parameters
        x = torch.cat([obs, act], 1)
        return torch.addmm(b2, torch.addmm(b1, torch.addmm(b0, x, w0).relu(), w1).relu(), w2)[:, 0]

    def draw(self) -> tuple[Tensor, Tensor]:
        index = torch.randint(len(self.rows), (self.settings["batch"],), device=self.device)
        return index, torch.randn(2, self.settings["batch"], self.settings["act"], device=self.device)

    def step(self, index: Tensor, noise: Tensor) -> dict[str, Tensor]:
        obs_size, act_size, discount = (self.settings[name] for name in ("obs", "act", "discount"))
        row = self.rows[index]
        obs, act, next_obs, rest = row.split([obs_size, act_size, obs_size, 3], 1)
        reward, continues, after = rest.unbind(1)
        temperature = self.temperature.parameters[0].detach().exp()
        with torch.no_grad():
            next_act, next_log_prob = self.act(next_obs, noise[1])
            value = self.values(self.targets, next_obs, next_act).amin(0) - temperature * next_log_prob
            wanted = reward + discount * (continues * value + after)
        critic_loss = 0.5 * (self.values(self.critics.parameters, obs, act) - wanted).square().mean(1).sum()
        self.critics.move(critic_loss)
        drawn, log_prob = self.act(obs, noise[0])
        q = self.values(self.critics.parameters, obs, drawn).amin(0)
        actor_loss = (temperature * log_prob - q).mean()
        self.actor.move(actor_loss)
        entropy = -self.settings["act"]
        self.temperature.move(-self.temperature.parameters[0] * (log_prob.detach().mean() + entropy))
        with torch.no_grad():
            if self.tuned:
                torch._foreach_lerp_(self.targets, self.critics.parameters, self.settings["tau"])
            else:
                for slow, fast in zip(self.targets, self.critics.parameters, strict=True):
                    slow.mul_(1 - self.settings["tau"]).add_(fast, alpha=self.settings["tau"])
        return {"critic_loss": critic_loss, "actor_loss": actor_loss, "entropy": -log_prob.mean()}


def timed(player: SAC, steps: int) -> float:
    """Seconds for that many steps."""
    wait = torch.cuda.synchronize if player.device == "cuda" else lambda: None
    wait()
    began = time.perf_counter()
    for _ in range(steps):
        player.step(*player.draw())
    wait()
    return time.perf_counter() - began


def main() -> None:
    folder, device, threads, task, style = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), *sys.argv[4:]
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    if device == "cuda" and not torch.cuda.is_available():
        sys.exit("this PyTorch sees no CUDA device")
    saved = dict(np.load(folder / "sac.npz"))
    player = SAC(saved, json.loads((folder / "sac.json").read_text()), device, style == "tuned")
    said: dict[str, float | str] = {"versions": f"torch={torch.__version__}"}
    if task == "check":
        values = player.step(*(torch.tensor(saved[key], device=device) for key in ("index", "noise")))
        values |= {"critics_moment": player.critics.moment.sort()[0], "actor_moment": player.actor.moment}
        values |= {"log_temperature": player.temperature.parameters[0]}
        np.savez(folder / "sac-torch.npz", **{key: x.detach().cpu().numpy() for key, x in values.items()})
    else:
        if device == "cuda":
            torch.set_float32_matmul_precision("high")  # TF32, which JAX's own default is there
        timed(player, 50)
        steps, spent, worked = 0, 0.0, time.process_time()
        while spent < SECONDS:
            steps, spent = steps + 100, spent + timed(player, 100)
        said |= {"ms": spent / steps * 1e3, "share": (time.process_time() - worked) / (spent * threads)}
        # A step that went astray would still be timed: say so instead.
        if not all(torch.isfinite(values).all() for values in player.actor.parameters + player.targets):
            sys.exit(f"the weights are not finite after {steps} steps")
    print(json.dumps(said))


if __name__ == "__main__":
    main()
