defmodule Tollgate.Metrics do
  @moduledoc """
  An instance in numbers for Prometheus, under the names that the server has.

      get "/metrics" do
        conn
        |> put_resp_content_type(Tollgate.Metrics.content_type(), nil)
        |> send_resp(200, Tollgate.Metrics.text(MyApp.Limiter))
      end

  No label has an agent's id. Verdicts and violations are counted with `observe: true`.
  """

  alias Tollgate.Observe

  @doc "The content type of `text/1`."
  @spec content_type() :: String.t()
  def content_type, do: "text/plain; version=0.0.4; charset=utf-8"

  @doc """
  The metrics as text.

      iex> Tollgate.start_link(name: Measured, observe: true)
      iex> Tollgate.check(Measured, "agent-7", {:ws, :heavy})
      iex> text = Tollgate.Metrics.text(Measured)
      iex> text =~ ~s(tollgate_decisions_total{policy="ws/heavy",tier="heavy",channel="ws",outcome="allow"} 1\\n)
      true
  """
  @spec text(Tollgate.instance()) :: String.t()
  def text(instance) do
    seen = Observe.snapshot(instance)

    families =
      [
        {:counter, "tollgate_decisions_total", "Verdicts, by lane and outcome.", decisions(seen)},
        {:counter, "tollgate_errors_total", "Checks for which no record was free.", [{[reason: "full"], seen.full}]},
        {:counter, "tollgate_violations_total", "Violations.", seen.violations},
        {:counter, "tollgate_sustained_abuse_total", "How often an agent's conduct became sustained abuse.",
         seen.sustained_abuse},
        {:gauge, "tollgate_keys", "Agents with a record.", seen.agents},
        {:gauge, "tollgate_keys_limit", "All records.", seen.records},
        {:counter, "tollgate_evictions_total", "Records given to other agents: idle ones without loss, others lossy.",
         [{[reason: "idle"], seen.idle_evictions}, {[reason: "lossy"], seen.lossy_evictions}]},
        {:gauge, "tollgate_agents_assigned", "Agents with an assignment.",
         [
           {[what: "any"], seen.agents_assigned},
           {[what: "overrides"], seen.agents_overridden},
           {[what: "exempt"], seen.agents_exempt}
         ]},
        {:gauge, "tollgate_reservations", "Open reservations.", seen.reservations},
        {:counter, "tollgate_reservations_expired_total",
         "Reservations that expired unsettled: their estimates stay charged.", seen.reservations_expired},
        {:counter, "tollgate_reservations_refused_total",
         "Refused reservations: the agent, or all agents together, had too many open.", seen.reservations_refused},
        {:counter, "tollgate_unknown_actions_total", "Checks whose action is not in the policy.", seen.unknown_actions},
        {:counter, "tollgate_clock_fallbacks_total", "How often the limiter stopped trusting a clock.",
         seen.clock_fallbacks},
        {:gauge, "tollgate_memory_bytes", "Memory of the limiter.", seen.memory}
      ] ++ shared(seen)

    IO.iodata_to_binary(Enum.map(families, &family/1))
  end

  defp decisions(seen) do
    for {lane, counts} <- Enum.sort(seen.lanes),
        {channel, tier} = split(lane),
        {outcome, key} <- [{"allow", :allowed}, {"warn", :warned}, {"deny", :denied}, {"exempt", :exempt}] do
      {[policy: lane, tier: tier, channel: channel, outcome: outcome], counts[key]}
    end
  end

  defp split(lane) do
    case lane |> String.split("/") |> Enum.split(-1) do
      {[], [tier]} -> {"", tier}
      {channel, [tier]} -> {Enum.join(channel, "/"), tier}
    end
  end

  defp shared(%{processes: 0}), do: []

  defp shared(seen) do
    [
      {:gauge, "tollgate_shared_processes", "Processes that share the limiter, this one among them.", seen.processes},
      {:counter, "tollgate_shared_takeovers_total", "Locks taken over from processes that died with them.",
       seen.takeovers},
      {:counter, "tollgate_shared_busy_total",
       "Calls of all processes that a lock stood in the way of, because its holder is stopped.", seen.busy}
    ]
  end

  defp family({kind, name, help, value}) when is_integer(value), do: family({kind, name, help, [{[], value}]})

  defp family({kind, name, help, samples}) do
    [
      "# HELP ",
      name,
      ?\s,
      help,
      "\n# TYPE ",
      name,
      ?\s,
      Atom.to_string(kind),
      ?\n | Enum.map(samples, &sample(name, &1))
    ]
  end

  defp sample(name, {[], value}), do: [name, ?\s, Integer.to_string(value), ?\n]

  defp sample(name, {labels, value}) do
    labels = Enum.map_intersperse(labels, ?,, fn {label, text} -> [Atom.to_string(label), "=\"", escaped(text), ?"] end)
    [name, ?{, labels, "} ", Integer.to_string(value), ?\n]
  end

  defp escaped(text) do
    text |> String.replace("\\", "\\\\") |> String.replace("\"", "\\\"") |> String.replace("\n", "\\n")
  end
end
