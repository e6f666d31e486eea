"""Export a policy to a NumPy file and act with it where JAX cannot be imported, as on a robot.

The exported folder has two files, policy.py and policy.npz, and needs NumPy alone. Expect the same actions to the last
bit, and some microseconds for each.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np

import understudy as us

demos = us.load("Pendulum", episodes=10)
result = us.imitate(us.bc.preset("quick"), demos)

out = Path("out/examples/robot")
written = result.export(out / "policy", replace=True)  # `understudy export RUN` does the same
print("largest difference at export:", written.difference)

observations = demos.observations[:500]
np.save(out / "observations.npy", observations)
np.save(out / "actions.npy", np.array([result.policy(observation) for observation in observations]))

ROBOT = """
import sys, time
sys.modules["jax"] = sys.modules["understudy"] = None  # importing them is an error now
sys.path.insert(0, "policy")
import numpy as np
from policy import load

policy = load()
observations = np.load("observations.npy")
start = time.perf_counter()
actions = np.array([policy(observation) for observation in observations])
print(f"{1e6 * (time.perf_counter() - start) / len(observations):.0f} microseconds for an action")
print("largest difference on the robot:", np.abs(actions - np.load("actions.npy")).max())
"""
subprocess.run([sys.executable, "-c", ROBOT], cwd=out, check=True)
