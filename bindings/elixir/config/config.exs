import Config

# The doctests ask the default instance: its time stands still.
if config_env() == :test, do: config(:tollgate, default: [clock: :manual])
