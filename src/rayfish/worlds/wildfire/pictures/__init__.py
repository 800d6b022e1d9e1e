"""Pictures of fires and of the agents in them."""
