defmodule Hub.Application do
  @moduledoc false

  use Application

  @impl Application
  def start(_type, _arguments) do
    port = String.to_integer(System.get_env("PORT", "4000"))
    children = limiter() ++ [{Bandit, plug: Hub.Router, port: port, ip: :loopback}]
    Supervisor.start_link(children, strategy: :one_for_one, name: Hub.Supervisor)
  end

  @doc "Everything but the server."
  def limiter do
    [
      {Phoenix.PubSub, name: Hub.PubSub},
      {Registry, keys: :duplicate, name: Hub.Agents},
      {Tollgate,
       name: Hub.Limiter,
       policy: :hub,
       agents: 100_000,
       observe: true,
       roster: 1_000,
       log: true,
       store: Application.get_env(:hub, :store, "data/limits.json"),
       pubsub: Hub.PubSub,
       telemetry_prefix: [:hub]},
      Hub.Watcher
    ]
  end
end
