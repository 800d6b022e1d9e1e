"""Stage 2 of 8: takes an experiment, gives an environment factory."""

from rayfish.legacy import moved_modules

moved_modules.install()  # the wildfire was rayfish.envs.wildfire before it was rayfish.worlds.wildfire
