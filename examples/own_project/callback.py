"""A callback of your own: an RLlib callback class, called on every worker."""

from ray.rllib.callbacks.callbacks import RLlibCallback


class Comfort(RLlibCallback):
    """Prints each iteration's comfort, and logs a figure that appears as `env/longest_episode`."""

    def on_episode_end(self, *, episode, metrics_logger, **kwargs):
        metrics_logger.log_value("longest_episode", len(episode), reduce="max")

    def on_train_result(self, *, algorithm, metrics_logger, result, **kwargs):
        comfort = result["env_runners"].get("rayfish", {}).get("env", {}).get("minutes_in_comfort", [])
        if comfort:
            print(f"comfort: {sum(comfort) / len(comfort):.0f} of 100 minutes")
