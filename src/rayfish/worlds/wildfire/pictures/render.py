"""Pictures of fires from plain arrays: one fire with legend, wind and clock, a mosaic of several, a GIF.

The ground is painted once per landscape (`Painter`); a frame then only adds what moves. Positions are
(x, y) = (column, row), row 0 is North, wind directions are degrees clockwise from North towards which it
blows. Equal inputs give equal pixels.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFilter
from scipy.ndimage import maximum_filter, uniform_filter

from rayfish.errors import RayfishError
from rayfish.files import atomic_write, folder_for
from rayfish.worlds.wildfire.fire import codes
from rayfish.worlds.wildfire.pictures import parts

Agent = tuple[float, float, int | str]
"""An agent on the map: x, y, and the number on its marker."""
Path2D = Sequence[tuple[float, float]]
"""Where an agent has been, (x, y), oldest first."""

COLOURS = 254
"""Colours of a GIF: 256 less one that means "as before" and one to spare."""
UNSEEN = 7
"""Levels (of 255) by which a pixel of a GIF may lag behind."""


class Painter:
    """Paints the fires of one landscape.

    :param elevation: feet, [H, W]
    :param fuel: numbers of fuel models [H, W]; `None` where there are none: the ground is then plain green
    :param cell_ft: side of a cell in feet
    :param size: pixels of the map's longer side, about (small maps take whole pixels per cell)
    """

    def __init__(self, elevation: Any, fuel: Any = None, cell_ft: float = 50.0, *, size: int = 640) -> None:
        self.elevation = np.array(elevation, dtype=float)
        self.fuel = None if fuel is None else np.array(fuel)
        self.cell_ft = float(cell_ft)
        self.size = int(size)
        _check_landscape(self.elevation, self.fuel, self.cell_ft)
        self.shape: tuple[int, int] = (self.elevation.shape[0], self.elevation.shape[1])
        longer = max(self.shape)
        self._pixels = float(round(size / longer)) if 4 * longer <= size else size / longer
        height, width = (max(1, round(n * self._pixels)) for n in self.shape)
        self._map_size = (width, height)
        self._ground, self._charred, self.fuels = parts.background(
            self.elevation, self.fuel, self.cell_ft, self._map_size
        )
        self._layout = parts.layout(*self._map_size, self.fuels)
        self._canvas = self._blank()
        self._others: dict[int, Painter] = {}

    @property
    def frame_shape(self) -> tuple[int, int, int]:
        """The shape of every frame, (h, w, 3): it depends on the landscape alone."""
        return (self._layout.height, self._layout.width, 3)

    @property
    def map_box(self) -> tuple[int, int, int, int]:
        """Where the map lies on a frame, in pixels: left, top, right, bottom."""
        (left, top), (width, height) = self._layout.map_at, self._map_size
        return (left, top, left + width, top + height)

    def at(self, size: int) -> Painter:
        """The painter of the same landscape whose map is `size` pixels long; made once and kept."""
        if size == self.size:
            return self
        if size not in self._others:
            self._others[size] = Painter(self.elevation, self.fuel, self.cell_ft, size=size)
        return self._others[size]

    def frame(
        self,
        fire_map: Any,
        agents: Sequence[Agent] = (),
        trails: Sequence[Path2D] | None = None,
        *,
        wind: tuple[float, float] | None = None,
        clock_minutes: float | None = None,
        title: str = "Wildfire",
        figures: Mapping[str, Any] | None = None,
    ) -> np.ndarray:
        """One picture of the fire, uint8 [h, w, 3] (`frame_shape`).

        :param fire_map: codes of the cells, [H, W]
        :param agents: (x, y, number) of each agent
        :param trails: for each agent, in the same order, where it has been, oldest first
        :param wind: miles per hour, and degrees towards which it blows
        :param clock_minutes: minutes since the fire began
        :param title: a line above the map
        :param figures: names and values to list beside the map, as many as there is room for (at least six)
        """
        picture, place = self._canvas.copy(), self._layout
        picture.paste(self.map_image(fire_map, agents, trails), place.map_at)
        draw = ImageDraw.Draw(picture)
        title = parts.shorten(title, 22, place.width - 2 * parts.MARGIN)
        parts.write(draw, (parts.MARGIN, 38), title, 22)
        if clock_minutes is not None:
            parts.write_clock(draw, place.time_at, clock_minutes)
        if wind is not None:
            parts.draw_wind(picture, place.wind_at, wind)
        parts.write_figures(draw, place.figures_at, list((figures or {}).items())[: place.figure_rows])
        return np.array(picture)

    def map_image(
        self, fire_map: Any, agents: Sequence[Agent] = (), trails: Sequence[Path2D] | None = None
    ) -> Image.Image:
        """The map alone, without legend or text."""
        cells = self._checked(np.asarray(fire_map))
        picture = self._ground.copy()
        self._paint_fire(picture, cells)
        self._paint_trails(picture, trails or ())
        self._paint_lines(picture, cells)
        self._paint_agents(picture, agents)
        return picture

    def _checked(self, cells: np.ndarray) -> np.ndarray:
        """The fire map in 8 bits, or an error that says what does not fit."""
        if cells.shape != self.shape:
            raise RayfishError(
                f"the fire map is {list(cells.shape)}, the landscape is {list(self.shape)}",
                "give one fire's map [H, W] of the landscape the painter was made for",
            )
        if cells.min() < codes.UNBURNED or cells.max() > codes.WETLINE:
            raise RayfishError(
                f"the fire map holds codes from {cells.min()} to {cells.max()}, not 0 to {codes.WETLINE}",
                "give a map without agents in it, and the agents as agents=[(x, y, number), ...]",
            )
        return cells.astype(np.uint8)

    def _paint_fire(self, picture: Image.Image, cells: np.ndarray) -> None:
        burning, burned = cells == codes.BURNING, cells == codes.BURNED
        gone = burning | burned
        if gone.any():
            field, window = parts.field_of(gone, self._map_size)
            charred = self._charred.crop((window.left, window.top, window.right, window.bottom))
            picture.paste(charred, window.at, field.point(parts.edge(0.5, self._pixels)))
        if not burning.any():
            return
        burning = self._at_least(burning, 2.4)
        self._paint_glow(picture, burning)
        # a cell among burning cells is at its hottest, one whose neighbours are ash is dying down; on fine
        # maps the neighbourhood is wider, so that the colours have pixels enough to change in
        wider = max(round(4 / self._pixels), 1)
        least = 0.55 if wider == 1 else 0.44
        around = [
            uniform_filter(part.astype(float), 2 * wider + 1, mode="constant") for part in (burning, burned)
        ]
        heat = burning * (least + (1.05 - least) * around[0] - 0.25 * around[1])
        flame, window = parts.field_of(np.clip(heat, 0.3, 1) * burning, self._map_size)
        cover = flame.point(parts.edge(0.26, self._pixels))
        flame.putpalette(parts.flame_palette())
        picture.paste(flame.convert("RGB"), window.at, cover)

    def _paint_glow(self, picture: Image.Image, burning: np.ndarray) -> None:
        radius = max(0.9 * self._pixels, 7.0)
        window = parts.Window.around(burning, self._map_size, reach=round(2.5 * radius))
        halo = window.enlarge(burning.astype(np.uint8) * 255, Image.Resampling.BILINEAR, shrink=4)
        halo = halo.filter(ImageFilter.GaussianBlur(radius / 4)).resize(
            window.size, Image.Resampling.BILINEAR
        )
        _lay(picture, parts.GLOW, window, halo.point(parts.GLOW_STRENGTH))

    def _paint_lines(self, picture: Image.Image, cells: np.ndarray) -> None:
        lines = self._at_least(np.where(cells >= codes.FIRELINE, cells, 0), 2.4)
        drawn = [
            (colour, *parts.field_of(lines == code, self._map_size))
            for code, colour in parts.LINE_COLOURS.items()
            if (lines == code).any()
        ]
        for _, field, window in drawn:
            _lay(picture, parts.CASING, window, field.point(parts.edge(0.24, self._pixels)))
        for colour, field, window in drawn:
            _lay(picture, colour, window, field.point(parts.edge(0.46, self._pixels)))

    @property
    def _marker(self) -> int:
        """Pixels across an agent."""
        least = 18 if self.size >= 480 else 14 if self.size >= 240 else 9
        return round(min(max(1.5 * self._pixels, least), 26))

    def _paint_trails(self, picture: Image.Image, trails: Sequence[Path2D]) -> None:
        for place, path in enumerate(trails):
            points = [self._centre(x, y) for x, y in path]
            colour = parts.AGENT_COLOURS[place % len(parts.AGENT_COLOURS)]
            parts.trail(picture, points, max(self._marker / 6, 1.6), colour)

    def _paint_agents(self, picture: Image.Image, agents: Sequence[Agent]) -> None:
        diameter = self._marker
        for place, (x, y, number) in enumerate(agents):
            sprite = parts.marker(str(number), place, diameter)
            # whole on the map, also at its border
            corner = [
                max(min(round(middle - sprite.width / 2), end - sprite.width + 2), -2)
                for middle, end in zip(self._centre(x, y), self._map_size, strict=True)
            ]
            picture.paste(sprite, (corner[0], corner[1]), sprite)

    def _centre(self, x: float, y: float) -> tuple[float, float]:
        return ((x + 0.5) * self._pixels, (y + 0.5) * self._pixels)

    def _at_least(self, cells: np.ndarray, pixels: float) -> np.ndarray:
        """`cells` widened, where a single one would be too small to see."""
        reach = max(math.ceil((pixels / self._pixels - 1) / 2), 0)
        return np.asarray(maximum_filter(cells, 2 * reach + 1, mode="constant")) if reach else cells

    def _blank(self) -> Image.Image:
        """What is the same on every frame: frame of the map, scale, legend."""
        place = self._layout
        picture = Image.new("RGB", (place.width, place.height), parts.PAPER)
        draw = ImageDraw.Draw(picture)
        left, top, right, bottom = self.map_box
        draw.rectangle((left - 1, top - 1, right, bottom), outline=parts.RULE)
        length, name = parts.scale_bar(self.cell_ft, self._pixels, max(0.3 * (right - left), 60))
        y = bottom + 20
        draw.line((left, y, left + length, y), fill=parts.TEXT, width=2)
        for x in (left, left + round(length)):
            draw.line((x, y - 4, x, y + 5), fill=parts.TEXT, width=2)
        parts.write(draw, (left + length + 10, y + 5), name, 13)
        text = f"{self.shape[1]} x {self.shape[0]} cells of {self.cell_ft:g} ft"
        if parts.font(13).getlength(text) + length + 100 < right - left:
            parts.write(draw, (right, y + 5), text, 13, parts.MUTED, anchor="rs")
        parts.draw_legend(picture, place.legend_at, parts.legend_entries(self.fuels), 2, parts.PANEL + 4)
        return picture


def frames(
    painters: Painter | Sequence[Painter],
    fire_maps: Any,
    *,
    agents: Sequence[Sequence[Agent]] | None = None,
    trails: Sequence[Sequence[Path2D]] | None = None,
    wind: Sequence[tuple[float, float]] | tuple[float, float] | None = None,
    clock_minutes: Sequence[float] | float | None = None,
    title: str = "Wildfires",
    captions: Sequence[str] | None = None,
    columns: int | None = None,
    size: int = 1120,
) -> np.ndarray:
    """A mosaic of several fires in one picture, uint8 [h, w, 3], with one legend below.

    :param painters: one for all fires, or one per fire
    :param fire_maps: codes, [N, H, W]
    :param agents: for each fire its agents, as `Painter.frame` takes them
    :param trails: for each fire the trails of its agents
    :param wind: one wind for all fires, or one per fire
    :param clock_minutes: minutes since the fires began: one number, or one per fire
    :param title: a line above the mosaic
    :param captions: a line above each fire; its number when not given
    :param columns: maps side by side; as square as possible when not given
    :param size: width of the maps together in pixels, about
    """
    maps = [np.asarray(one) for one in fire_maps]
    count = len(maps)
    if count == 0:
        raise RayfishError("there is no fire to paint", "give fire maps [N, H, W] with N at least 1")
    given = [painters] * count if isinstance(painters, Painter) else list(painters)
    for name, values in (("painters", given), ("agents", agents), ("trails", trails), ("captions", captions)):
        if values is not None and len(values) != count:
            raise RayfishError(f"{count} fires, but {len(values)} {name}", f"give one of {name} per fire")
    across = min(columns or math.ceil(math.sqrt(count)), count)
    room = (size - (across - 1) * parts.GAP) // across
    tiles = [one.at(max(96, min(room, 640))) for one in given]
    winds = _per_fire(wind, count, "wind")
    clocks = _per_fire(clock_minutes, count, "clock_minutes")
    images = [
        tile.map_image(fire, agents[i] if agents else (), trails[i] if trails else None)
        for i, (tile, fire) in enumerate(zip(tiles, maps, strict=True))
    ]
    present = {name for tile in tiles for name, _ in tile.fuels}
    fuels = [(name, colour) for name, colour, _ in parts.FUEL_GROUPS if name in present]
    notes = [captions[i] if captions else f"Fire {i}" for i in range(count)]
    picture = _mosaic(images, across, title=title, captions=notes, winds=winds, clocks=clocks, fuels=fuels)
    return np.array(picture)


def save_gif(
    path: str | Path,
    frames: Iterable[Any],
    fps: float = 12.0,
    hold_seconds: float = 2.0,
    seconds: Sequence[float] | None = None,
) -> Path:
    """Write frames as an endless GIF with one palette and return its path.

    :param path: file to write; folders are made
    :param frames: pictures, uint8 [h, w, 3], all of one size
    :param fps: pictures per second, at most 50
    :param hold_seconds: how long the last picture stays before it begins again
    :param seconds: how long each picture stays, in place of `fps`
    """
    pictures = [Image.fromarray(np.ascontiguousarray(frame, dtype=np.uint8)) for frame in frames]
    if not pictures:
        raise RayfishError("there is no frame to write", f"give at least one picture for {path}")
    if not 0 < fps <= 50:
        raise RayfishError(f"{fps:g} pictures per second cannot be shown", "choose fps above 0 and up to 50")
    sizes = sorted({picture.size for picture in pictures})
    if len(sizes) > 1:
        raise RayfishError(f"the frames differ in size: {sizes}", "paint them with one painter")
    indexed = _indexed(pictures)
    lengths = [1 / fps] * len(indexed) if seconds is None else list(seconds)
    lengths[-1] = max(lengths[-1], hold_seconds)
    # A GIF counts in 1/100 s, at least 2 per picture. Moments are rounded, not lengths: this keeps the speed.
    moments = [round(100 * moment) for moment in accumulate(lengths, initial=0.0)]
    durations = [10 * max(2, then - now) for now, then in pairwise(moments)]
    target = Path(path)
    content = io.BytesIO()
    indexed[0].save(
        content,
        format="GIF",
        save_all=True,
        append_images=indexed[1:],
        duration=durations,
        loop=0,
        disposal=1,
        optimize=True,
    )
    with folder_for(target):
        atomic_write(target, content.getvalue())
    return target


def _mosaic(
    images: Sequence[Image.Image],
    columns: int,
    *,
    title: str,
    captions: Sequence[str],
    winds: Sequence[tuple[float, float] | None],
    clocks: Sequence[float | None],
    fuels: parts.Legend,
) -> Image.Image:
    """Maps in rows, each with a line above it, and one legend below all of them."""
    head = 26
    wide, high = max(i.width for i in images), max(i.height for i in images)
    rows = math.ceil(len(images) / columns)
    width = max(columns * wide + (columns - 1) * parts.GAP, 2 * parts.PANEL) + 2 * parts.MARGIN
    entries = parts.legend_entries(fuels)
    across = min((width - 2 * parts.MARGIN) // 112, len(entries))
    bottom = parts.HEADER + rows * (high + head + 14) + 6
    height = bottom + 26 + math.ceil(len(entries) / across) * parts.ROW + parts.MARGIN
    picture = Image.new("RGB", (width, height), parts.PAPER)
    draw = ImageDraw.Draw(picture)
    parts.write(draw, (parts.MARGIN, 38), parts.shorten(title, 22, width - 2 * parts.MARGIN), 22)
    for i, image in enumerate(images):
        x, y = (
            parts.MARGIN + (i % columns) * (wide + parts.GAP),
            parts.HEADER + (i // columns) * (high + head + 14),
        )
        right = x + image.width
        minutes, wind = clocks[i], winds[i]
        if minutes is not None:
            parts.write(draw, (right, y + 15), parts.clock(minutes), 14, anchor="rs")
            right -= round(parts.font(14).getlength(parts.clock(minutes))) + 10
        if wind is not None and wind[0] >= 0.05:
            picture.paste(parts.small_arrow(round(wind[1]) % 360), (right - 18, y + 1))
            right -= 26
        parts.write(draw, (x, y + 15), parts.shorten(captions[i], 14, right - x), 14, parts.MUTED)
        picture.paste(image, (x, y + head))
        draw.rectangle((x - 1, y + head - 1, x + image.width, y + head + image.height), outline=parts.RULE)
    parts.draw_legend(
        picture, (parts.MARGIN, bottom), entries, across, min(width - 2 * parts.MARGIN, across * 124)
    )
    return picture


def _indexed(pictures: Sequence[Image.Image]) -> list[Image.Image]:
    """The pictures in one palette; a pixel keeps its colour until the change could be seen: smaller files."""
    palette = _shared_palette(pictures)
    table = np.reshape(palette.getpalette() or [], (-1, 3)).astype(np.int16)[: COLOURS + 1]
    images: list[Image.Image] = []
    shown, corner = np.zeros((0, 0), np.uint8), 0
    for picture in pictures:
        cells = np.array(picture.quantize(palette=palette, dither=Image.Dither.NONE))
        if images:
            kept = np.abs(np.asarray(picture, np.int16) - table[shown]).max(axis=-1) <= UNSEEN
            cells[kept] = shown[kept]
            if np.array_equal(cells, shown):
                # Pillow would leave out a picture equal to the one before: one corner turns by a shade
                cells[0, 0] = corner if shown[0, 0] == COLOURS else COLOURS
        else:
            corner = int(cells[0, 0])
            table[COLOURS] = table[corner] + np.where(table[corner] < 128, 1, -1)
        image = Image.fromarray(cells)
        image.putpalette(table.ravel().tolist())
        images.append(image)
        shown = cells
    return images


def _shared_palette(pictures: Sequence[Image.Image]) -> Image.Image:
    """`COLOURS` colours and a spare one that serve all pictures, so that what stands still does not flicker.

    Flames, lines and agents have their own: they are few pixels among many, but what people look at.
    """
    flames = np.reshape(parts.flame_palette(), (256, 3))[60::8].tolist()
    own = [
        *flames,
        *parts.LINE_COLOURS.values(),
        *parts.AGENT_COLOURS,
        parts.PAPER,
        parts.TEXT,
        parts.MUTED,
        parts.ACCENT,
        (255, 255, 255),
    ]
    count = min(len(pictures), 8)
    chosen = [pictures[round(i * (len(pictures) - 1) / max(count - 1, 1))] for i in range(count)]
    width, height = chosen[0].size
    small = (max(width // 2, 1), max(height // 2, 1))
    sheet = Image.new("RGB", (small[0], small[1] * count))
    for i, picture in enumerate(chosen):
        sheet.paste(picture.resize(small, Image.Resampling.NEAREST), (0, i * small[1]))
    common = sheet.quantize(colors=COLOURS - len(own), method=Image.Quantize.MEDIANCUT).getpalette() or []
    palette = Image.new("P", (1, 1))
    bands = [band for colour in own for band in colour] + common
    # entries that nothing needs repeat the ground of the picture
    palette.putpalette((bands + [*parts.PAPER] * (COLOURS + 1))[: 3 * (COLOURS + 1)])
    return palette


def _per_fire(value: Any, count: int, name: str) -> list[Any]:
    """A value for all fires, or one per fire, as a list."""
    single_dimensions = 1 if name == "wind" else 0
    if value is None or np.ndim(value) == single_dimensions:
        return [value] * count
    if len(value) != count:
        raise RayfishError(
            f"{count} fires, but {len(value)} values of {name}", "give one per fire or one for all"
        )
    return list(value)


def _lay(picture: Image.Image, colour: parts.Colour, window: parts.Window, mask: Image.Image) -> None:
    """Paint a colour onto the picture through a mask (an image of the colour is pasted faster than it)."""
    picture.paste(Image.new("RGB", window.size, colour), window.at, mask)


def _check_landscape(elevation: np.ndarray, fuel: np.ndarray | None, cell_ft: float) -> None:
    if elevation.ndim != 2 or 0 in elevation.shape:
        raise RayfishError(
            f"elevation has the shape {list(elevation.shape)}", "give one landscape's array [H, W]"
        )
    if fuel is not None and fuel.shape != elevation.shape:
        raise RayfishError(
            f"fuel is {list(fuel.shape)} and elevation {list(elevation.shape)}",
            "give both of one shape [H, W]",
        )
    if not cell_ft > 0:
        raise RayfishError(f"cells of {cell_ft:g} ft have no size", "give cell_ft above 0")
