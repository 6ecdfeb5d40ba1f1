defmodule Hub.MixProject do
  use Mix.Project

  def project do
    [app: :hub, version: "0.1.0", elixir: "~> 1.14", deps: deps()]
  end

  def application do
    [extra_applications: [:logger], mod: {Hub.Application, []}]
  end

  defp deps do
    [
      {:tollgate, path: "../.."},
      {:bandit, "~> 1.5"},
      {:jason, "~> 1.4"},
      {:phoenix_pubsub, "~> 2.1"},
      {:plug, "~> 1.15"},
      {:telemetry, "~> 1.2"},
      {:websock_adapter, "~> 0.5"}
    ]
  end
end
