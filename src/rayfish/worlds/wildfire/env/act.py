"""What agents do in a step: first leave a line on their cell, then move (SimHarness's order)."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from rayfish.worlds.wildfire.env.options import INTERACTIONS, MOVES, Options
from rayfish.worlds.wildfire.fire.codes import BURNING, UNBURNED

CHAIN_FT = 66.0
CREW = 20
"""Persons in a hand crew."""

_HAND = (4.0, 3.0, 0.7, 0.4, 0.7, 0.7, 0.7, 2.0, 2.0, 1.0, 1.0, 1.0, 0.4)  # per person
_DOZER = (105.0, 105.0, 88.0, 48.0, 88.0, 68.0, 68.0, 88.0, 68.0, 15.0, 33.0, 33.0, 15.0)
_ENGINE = (12.0, 7.0, 5.0, 3.0, 6.0, 6.0, 5.0, 8.0, 7.0, 6.0, 8.0, 5.0, 4.0)

CHAINS_PER_HOUR = {"hand_crew": tuple(CREW * rate for rate in _HAND), "dozer": _DOZER, "engine": _ENGINE}
"""Chains of line per hour in Anderson's fuel models 1 to 13, initial action, after the field guides of the US
National Wildfire Coordinating Group: a hand crew of 20, a medium dozer (type 2) going up slopes to 25 %, an
engine with a crew of three."""

_LIKE = {
    **dict.fromkeys(range(101, 105), 1),
    **dict.fromkeys(range(105, 110), 3),
    **dict.fromkeys(range(121, 125), 2),
    **dict.fromkeys(range(141, 145), 5),
    **dict.fromkeys(range(145, 150), 4),
    **dict.fromkeys(range(161, 166), 10),
    **dict.fromkeys((181, 183, 184, 185, 187, 188), 8),
    **dict.fromkeys((182, 186, 189), 9),
    201: 11,
    202: 12,
    203: 12,
    204: 13,
}
"""The model of Anderson's in which work is like in one of Scott and Burgan's."""


class Crew(NamedTuple):
    """The agents of N episodes, arrays [N, A]."""

    x: Any  # column
    y: Any  # row
    lost: Any  # overrun by fire
    work: Any  # steps spent on the line of the cell
    placed: Any  # whether the last step finished a line


def new_crew(number: int, agents: int) -> Crew:
    """Agents that are nowhere yet."""
    shape = (number, agents)
    return Crew(*(np.zeros(shape, kind) for kind in (np.int32, np.int32, np.bool_, np.int32, np.bool_)))


class Decoder:
    """Actions as an agent gives them, into columns and rows to go and codes to leave."""

    def __init__(self, options: Options) -> None:
        moves = np.array([MOVES[name] for name in options.movements], np.int32)
        codes = np.array([INTERACTIONS[name] for name in options.interactions], np.uint8)
        self.agents, self.discrete = options.num_agents, options.action_space_cls == "Discrete"
        self.sizes = (len(moves), len(codes))
        self._dx, self._dy, self._codes = moves[:, 0].copy(), moves[:, 1].copy(), codes

    def __call__(self, actions: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of actions [N, ...] the columns, rows and codes [N, A]; Discrete: movement = a % movements."""
        given = np.asarray(actions, np.int64)
        if self.discrete:
            flat = given.reshape(-1, self.agents)
            move, what = flat % self.sizes[0], flat // self.sizes[0]
        else:
            pairs = given.reshape(-1, self.agents, 2)
            move, what = pairs[..., 0], pairs[..., 1]
        return self._dx[move], self._dy[move], self._codes[what]

    def encode(self, move: np.ndarray, what: np.ndarray) -> np.ndarray:
        """Numbers of movements and interactions [N, A] as actions of the action space, [N, ...]."""
        if self.discrete:
            flat = move + self.sizes[0] * what
            return flat[:, 0] if self.agents == 1 else flat
        return np.stack([move, what], axis=-1).reshape(len(move), -1)


def steps_per_line(resource: str | None, cell_ft: float, step_minutes: float) -> np.ndarray:
    """Steps that a line across a cell takes, int32 [256] by number of the fuel model; at least one."""
    steps = np.ones(256, np.int32)
    if resource is None:
        return steps
    for model in (*range(1, 14), *_LIKE):
        minutes = 60 * cell_ft / CHAIN_FT / CHAINS_PER_HOUR[resource][_LIKE.get(model, model) - 1]
        steps[model] = max(1, math.ceil(minutes / step_minutes - 1e-9))
    return steps


@njit(cache=True)
def act(
    crew: Crew, dx: Any, dy: Any, codes: Any, fire_map: Any, height: int, width: int,
    fuel: Any, landscape_of: Any, work: Any, lines: Any,
) -> int:  # fmt: skip
    """Every agent's interaction, then its movement; gives how many lines are to be placed.

    Only unburned cells take a line. An agent whose line is not finished stays at its work.

    :param fire_map: uint8 [N, C]; not written: lines are for the simulator to place
    :param fuel: int16 [L, C] fuel models
    :param work: int32 [256] steps that a line takes, by fuel model
    :param lines: int64 [4, N * A] filled with the episode, x, y and code of each line
    """
    found = 0
    for n in range(crew.x.shape[0]):
        first = found
        for a in range(crew.x.shape[1]):
            crew.placed[n, a] = False
            if crew.lost[n, a]:
                continue
            x, y = crew.x[n, a], crew.y[n, a]
            cell = y * width + x
            if codes[n, a] != 0 and fire_map[n, cell] == UNBURNED:
                crew.work[n, a] += 1
                if crew.work[n, a] < work[fuel[landscape_of[n], cell]]:
                    continue
                crew.work[n, a] = 0
                taken = False
                for other in range(first, found):
                    taken = taken or (lines[1, other] == x and lines[2, other] == y)
                if not taken:
                    lines[0, found], lines[1, found], lines[2, found] = n, x, y
                    lines[3, found] = codes[n, a]
                    crew.placed[n, a] = True
                    found += 1
            to_x, to_y = x + dx[n, a], y + dy[n, a]
            if 0 <= to_x < width and 0 <= to_y < height and (to_x != x or to_y != y):
                crew.x[n, a], crew.y[n, a] = to_x, to_y
                crew.work[n, a] = 0
    return found


@njit(cache=True)
def count_endangered(crew: Crew, fire_map: Any, height: int, width: int, endangered: Any) -> None:
    """Adds the agents in or beside flames to `endangered` [N]."""
    for n in range(crew.x.shape[0]):
        for a in range(crew.x.shape[1]):
            if crew.lost[n, a]:
                continue
            x, y = crew.x[n, a], crew.y[n, a]
            near = False
            for row in range(max(0, y - 1), min(height, y + 2)):
                for column in range(max(0, x - 1), min(width, x + 2)):
                    near = near or fire_map[n, row * width + column] == BURNING
            endangered[n] += near


@njit(cache=True)
def lose_overrun(crew: Crew, fire_map: Any, width: int) -> None:
    """Agents whose own cell burns are lost."""
    for n in range(crew.x.shape[0]):
        for a in range(crew.x.shape[1]):
            if fire_map[n, crew.y[n, a] * width + crew.x[n, a]] == BURNING:
                crew.lost[n, a] = True
