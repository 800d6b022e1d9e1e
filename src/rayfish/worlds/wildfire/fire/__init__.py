"""The fire itself: landscapes, fuels, physics, many fires at once. Neither agents nor learning."""
