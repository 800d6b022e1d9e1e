"""Hydra's defaults list, from folders of YAML files whose values Hydra does not read.

Hydra's public `compose` builds the whole configuration, without the line of each value, and scans for
plugins first (0.2 s). Without these private names we would have to write the defaults list's rules again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

Read = Callable[[Path], tuple[Mapping[str, Any], str]]
"""Reads a file: its values and its text."""

_SCHEME = "rayfish"
"""Not Hydra's own `file`, whose files the program that uses Rayfish may read."""


def defaults_list(config_name: str, choices: list[str], folders: Iterable[Path], read: Read) -> Any:
    """Hydra's `DefaultsList` of a file: which files, in which order, under which package."""
    from hydra._internal.config_repository import CachingConfigRepository, ConfigRepository
    from hydra._internal.config_search_path_impl import ConfigSearchPathImpl
    from hydra._internal.defaults_list import create_defaults_list
    from hydra.core.override_parser.overrides_parser import OverridesParser

    _register_sources(read)
    search = ConfigSearchPathImpl()
    search.append("hydra", "pkg://hydra.conf")
    for folder in folders:
        search.append("rayfish", f"{_SCHEME}://{folder}")
    search.append("schema", "structured://")
    overrides = OverridesParser.create().parse_overrides(choices)

    def compute(with_hydra: bool) -> Any:
        repository = CachingConfigRepository(ConfigRepository(config_search_path=search))
        return create_defaults_list(repository, config_name, overrides, with_hydra, False)

    try:
        return compute(with_hydra=False)
    except Exception as error:
        if "hydra/" not in str(error):
            raise
    # Only a file that overrides Hydra's own groups (hydra/job_logging) needs those, and its plugins.
    from hydra.core.plugins import Plugins

    Plugins.instance()
    return compute(with_hydra=True)


def _register_sources(read: Read) -> None:
    """Register the readers of files ourselves: Hydra's plugin scan would find its own, in 0.2 s."""
    from hydra._internal.core_plugins.file_config_source import FileConfigSource
    from hydra._internal.core_plugins.importlib_resources_config_source import ImportlibResourcesConfigSource
    from hydra._internal.core_plugins.structured_config_source import StructuredConfigSource
    from hydra._internal.sources_registry import SourcesRegistry

    registry = SourcesRegistry.instance()
    for source in (FileConfigSource, ImportlibResourcesConfigSource, StructuredConfigSource):
        registry.register(source)
    registry.types[_SCHEME] = _file_source(read)  # `register` keeps the first one of a scheme


@functools.cache
def _file_source(read: Read) -> Any:
    """Hydra's reader of files, limited to headers and defaults lists."""
    from hydra._internal.core_plugins.file_config_source import FileConfigSource
    from hydra.plugins.config_source import ConfigResult, ConfigSource
    from omegaconf import OmegaConf

    class Source(FileConfigSource):
        """Reads files with `read`, and builds no configuration of their values."""

        @staticmethod
        def scheme() -> str:
            """See `_SCHEME`."""
            return _SCHEME

        def load_config(self, config_path: str) -> Any:
            """The defaults list of a file, and the package in its header."""
            values, text = read(Path(self.path, self._normalize_file_name(config_path)))
            defaults = OmegaConf.create({key: values[key] for key in ("defaults",) if key in values})
            header = ConfigSource._get_header_dict(text[:512])
            return ConfigResult(self.provider, f"{_SCHEME}://{self.path}", defaults, header)

    return Source
