"""The door of `envs/` to `legacy/`: environments, names and imports of earlier times.

No other module of `envs/` imports `legacy/`, except that the package itself installs its modules' old names.
"""

from __future__ import annotations

from rayfish.legacy.env_api import adapter, contract_layer, modernised, notice
from rayfish.legacy.env_names import OLD_EXAMPLES, closest_env, gone_env, needs_ale, todays_env
from rayfish.legacy.import_paths import notices
from rayfish.legacy.simharness import env_config as simharness_env_config

__all__ = [
    "OLD_EXAMPLES",
    "adapter",
    "closest_env",
    "contract_layer",
    "gone_env",
    "modernised",
    "needs_ale",
    "notice",
    "notices",
    "simharness_env_config",
    "todays_env",
]
