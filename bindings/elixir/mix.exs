for file <- ~w(build precompiled package), do: Code.require_file("mix/#{file}.exs", __DIR__)

defmodule Tollgate.MixProject do
  use Mix.Project

  @version "0.1.0"

  def project do
    [
      app: :tollgate,
      version: @version,
      elixir: "~> 1.14",
      compilers: [:tollgate_nif | Mix.compilers()],
      elixirc_paths: if(Mix.env() == :test, do: ["lib", "test/support"], else: ["lib"]),
      start_permanent: Mix.env() == :prod,
      deps: deps(System.get_env("TOLLGATE_NO_DEPS")),
      description: "An exact, lock-free rate limiter as a NIF: per-agent limits, plans, budgets, HTTP and WebSocket",
      docs: &docs/0,
      package: Tollgate.Package.metadata()
    ]
  end

  def application do
    [extra_applications: [:crypto, :logger], mod: {Tollgate.Application, []}]
  end

  # An application that has one of them gets what this package does with it; none is needed. They are declared, so that
  # Mix compiles them first and lets this package see them. This project's own tests reach no registry: `make` sets
  # TOLLGATE_NO_DEPS=1, which leaves the list empty and changes nothing else.
  defp deps("1"), do: []

  defp deps(_) do
    [
      {:plug, "~> 1.14", optional: true},
      {:telemetry, "~> 1.0", optional: true},
      {:phoenix_pubsub, "~> 2.1", optional: true},
      {:jason, "~> 1.4", optional: true},
      {:ex_doc, "~> 0.34", only: :dev, runtime: false}
    ]
  end

  # What a reader looks for first stands first.
  defp docs do
    [
      main: "elixir",
      extras: Path.wildcard(Path.expand("../../docs/elixir*.md", __DIR__)),
      groups_for_modules: [
        "The limiter": [Tollgate, Tollgate.Options, Tollgate.Policy, Tollgate.Error],
        "HTTP and WebSocket": [
          Tollgate.Plug,
          Tollgate.Socket,
          Tollgate.Actions,
          Tollgate.AdminPlug,
          Tollgate.DashboardPlug
        ],
        Operators: [Tollgate.Control, Tollgate.Conduct, Tollgate.Observe, Tollgate.AgentView, Tollgate.Metrics],
        Events: [Tollgate.Events, Tollgate.Telemetry],
        "More than one machine": [Tollgate.Redis],
        "From another limiter": [Tollgate.Hub]
      ]
    ]
  end
end

defmodule Mix.Tasks.Compile.TollgateNif do
  @moduledoc "Builds the NIF, or fetches it, before the modules that load it are compiled."

  use Mix.Task.Compiler

  @impl Mix.Task.Compiler
  def run(_arguments) do
    Tollgate.Build.nif()
    :ok
  end
end
