"""A faster step for PyBullet's walkers.

Two thirds of the original step is Python code that queries the simulator one joint at a time. `FastStep` queries all
joints, links and contacts with a few calls. It computes every number from the same values in the same order, so results
are equal bit for bit (tests/envs/test_bullet.py).
"""

from typing import Any

import gymnasium
import numpy as np


def speed_up(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    """Give the environment a `FastStep` if it is one of PyBullet's own walkers. Others are returned unchanged."""
    from pybullet_envs_gymnasium import gym_locomotion_envs as walkers

    own = (walkers.AntBulletEnv, walkers.HalfCheetahBulletEnv, walkers.HopperBulletEnv, walkers.Walker2DBulletEnv)
    walker: Any = env.unwrapped
    if type(walker) in own:
        walker.step = FastStep(walker)
    return env


class FastStep:
    """Replaces the `step` method of a walker."""

    def __init__(self, walker: Any):
        self.walker, self._client = walker, None

    def __call__(self, a: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        walker, robot = self.walker, self.walker.robot
        if self._client is not walker._p:
            self._load_indices(walker._p)
        self._apply_torques(a)
        self._p.stepSimulation(physicsClientId=self._id)
        state = self._state()
        walker._alive = float(robot.alive_bonus(state[0] + robot.initial_z, robot.body_rpy[1]))
        done = bool(walker._isDone()) or not np.isfinite(state).all()
        before, walker.potential = walker.potential, robot.calc_potential()
        progress = float(walker.potential - before)
        self._update_contacts()
        effort = walker.electricity_cost * float(_mean(np.abs(a * robot.joint_speeds)))
        effort += walker.stall_torque_cost * float(_mean(np.square(a)))
        at_limit = float(walker.joints_at_limit_cost * robot.joints_at_limit)
        walker.rewards = [walker._alive, progress, effort, at_limit, 0.0]
        reward = sum(walker.rewards)
        walker.reward += reward
        return state, reward, done, False, {}

    def _load_indices(self, client: Any) -> None:
        """Store the indices of all joints and links. Call it when the robot and its ground are loaded."""
        import pybullet

        robot = self.walker.robot
        self._p, self._client, self._id = pybullet, client, client._client
        joints, parts = robot.ordered_joints, list(robot.parts.values())
        self._body = joints[0].bodies[joints[0].bodyIndex]
        self._joints = [joint.jointIndex for joint in joints]
        self._limits = [(joint.lowerLimit, joint.upperLimit - joint.lowerLimit) for joint in joints]
        body_links = [(part.bodies[part.bodyIndex], part.bodyPartIndex) for part in parts]
        self._bases = [(row, body) for row, (body, link) in enumerate(body_links) if link == -1]
        self._rows = [row for row, (_, link) in enumerate(body_links) if link != -1]
        self._links = [body_links[row][1] for row in self._rows]
        self._torso = body_links.index(
            (robot.robot_body.bodies[robot.robot_body.bodyIndex], robot.robot_body.bodyPartIndex)
        )
        self._feet = {foot.bodyPartIndex: number for number, foot in enumerate(robot.feet)}
        self._poses: list[Any] = [None] * len(body_links)

    def _apply_torques(self, a: np.ndarray) -> None:
        assert np.isfinite(a).all()
        robot = self.walker.robot
        torques = [
            robot.power * joint.power_coef * min(max(x, -1.0), 1.0)
            for joint, x in zip(robot.ordered_joints, a.tolist(), strict=True)
        ]
        self._p.setJointMotorControlArray(
            self._body, self._joints, self._p.TORQUE_CONTROL, forces=torques, physicsClientId=self._id
        )

    def _state(self) -> np.ndarray:
        robot, p = self.walker.robot, self._p
        angles = p.getJointStates(self._body, self._joints, physicsClientId=self._id)
        flat = [
            number
            for (x, v, _, _), (low, width) in zip(angles, self._limits, strict=True)
            for number in (2 * (x - low) / width - 1.0, 0.1 * v)
        ]
        j = np.array(flat, np.float32)
        robot.joint_speeds = j[1::2]
        robot.joints_at_limit = np.count_nonzero(np.abs(j[0::2]) > 0.99)

        poses = self._poses
        for row, link in zip(
            self._rows, p.getLinkStates(self._body, self._links, physicsClientId=self._id), strict=True
        ):
            poses[row] = link
        for row, body in self._bases:
            poses[row] = p.getBasePositionAndOrientation(body, physicsClientId=self._id)
        where = np.array([pose[0] for pose in poses])
        torso = poses[self._torso]
        x, y, z = _mean(where[:, 0]), _mean(where[:, 1]), np.float64(torso[0][2])
        robot.body_xyz, robot.body_real_xyz = (x, y, z), np.array(torso[0])
        robot.body_rpy = r, pitch, yaw = p.getEulerFromQuaternion(torso[1])
        aside, ahead = robot.walk_target_y - y, robot.walk_target_x - x
        robot.walk_target_theta = np.arctan2(aside, ahead)
        away = np.array([aside, ahead])
        robot.walk_target_dist = np.sqrt(away.dot(away))
        angle = robot.walk_target_theta - yaw
        turn = np.array([[np.cos(-yaw), -np.sin(-yaw), 0], [np.sin(-yaw), np.cos(-yaw), 0], [0, 0, 1]])
        vx, vy, vz = np.dot(turn, robot.robot_body.speed())
        more = (z - robot.initial_z, np.sin(angle), np.cos(angle), 0.3 * vx, 0.3 * vy, 0.3 * vz, r, pitch)
        state = np.concatenate([np.array(more, np.float32), j, robot.feet_contact])
        return np.minimum(np.maximum(state, np.float32(-5)), np.float32(5))

    def _update_contacts(self) -> None:
        """Record which feet touch the ground. The next step's observation contains this."""
        robot = self.walker.robot
        robot.feet_contact[:] = 0.0
        for ground, link in self.walker.ground_ids:
            for contact in self._p.getContactPoints(self._body, ground, physicsClientId=self._id):
                if contact[4] == link and contact[3] in self._feet:
                    robot.feet_contact[self._feet[contact[3]]] = 1.0


def _mean(values: np.ndarray) -> Any:
    """`np.mean` without its overhead."""
    return np.add.reduce(values) / values.dtype.type(len(values))
