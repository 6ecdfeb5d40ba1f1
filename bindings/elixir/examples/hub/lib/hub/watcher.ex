defmodule Hub.Watcher do
  @moduledoc "Tells people: a notification when abuse is sustained, a snapshot for the dashboard every ten seconds."

  use GenServer

  require Logger

  @every_ms 10_000

  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)

  @doc "What the dashboard shows."
  def state do
    seen = Tollgate.Observe.snapshot(Hub.Limiter)
    %{agents: agents} = Tollgate.Observe.agents(Hub.Limiter, sort: :violations, per_page: 20)

    %{
      violations_last_hour: seen.violations_last_hour,
      exempt: seen.agents_exempt,
      lanes: seen.lanes,
      top_offenders: for(offender <- Tollgate.Observe.top_offenders(Hub.Limiter, 3).agents, do: shown(offender)),
      agents: for(%{dominant: lane} = agent when lane != nil <- agents, do: card(agent, lane))
    }
  end

  defp card(agent, lane) do
    %{
      agent: Tollgate.Observe.shown(agent.agent),
      tier: lane.tier,
      used_percent: lane.used_percent,
      level: lane.level,
      rate_limited: agent.rate_limited
    }
  end

  defp shown(offender), do: %{offender | agent: Tollgate.Observe.shown(offender.agent)}

  @impl GenServer
  def init(nil) do
    Phoenix.PubSub.subscribe(Hub.PubSub, "tollgate")
    Process.send_after(self(), :snapshot, @every_ms)
    {:ok, nil}
  end

  @impl GenServer
  def handle_info(:snapshot, nil) do
    Phoenix.PubSub.broadcast(Hub.PubSub, "dashboard", {:snapshot, state()})
    Process.send_after(self(), :snapshot, @every_ms)
    {:noreply, nil}
  end

  # Once for each crossing of the threshold, and not with every denial.
  def handle_info({:tollgate, _instance, :sustained_abuse, %{agent: agent}}, nil) do
    Logger.error("#{Tollgate.Observe.shown(agent)} keeps hitting its limits")
    Phoenix.PubSub.broadcast(Hub.PubSub, "notifications", {:sustained_abuse, agent})
    {:noreply, nil}
  end

  def handle_info(_event, nil), do: {:noreply, nil}
end
