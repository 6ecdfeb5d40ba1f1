defmodule Tollgate.Verdict do
  @moduledoc false
  # Turns the NIF's answers into what callers get, and reports them to telemetry and subscribers.
  #
  # A denial of a request that was counted comes as `{:deny, wait, in_a_row, sustained_abuse}`: the last two are for
  # events, and the caller gets `{:deny, wait}`.

  alias Tollgate.{Events, Instance, Native, Policy, Telemetry}

  @doc "Checks, and returns all there is to know of the verdict as a map: for responses with headers."
  def ask(instance, agent, lane, options) do
    {reference, reporter} = Instance.find(instance)

    with %{} = verdict <- Native.verdict(reference, agent, lane, options) do
      report(counted(verdict), instance, reporter, agent, lane)
      Map.put(verdict, :full_in_ms, milliseconds(verdict.full_in_ns))
    end
  end

  @doc "A verdict in full, as `Native.ask/4` would have returned it."
  def counted(%{decision: :deny, counted: true} = verdict),
    do: {:deny, verdict.retry_after_ms, verdict.in_a_row, verdict.sustained_abuse}

  def counted(%{decision: :deny, retry_after_ms: wait}), do: {:deny, wait}
  def counted(%{decision: :exempt}), do: {:allow, :exempt}
  def counted(%{decision: decision, remaining: remaining}), do: {decision, remaining}

  @doc "Reports an answer of the NIF, and returns it as the caller gets it."
  def report({:deny, wait, in_a_row, sustained}, instance, reporter, agent, lane) do
    {channel, tier} = pair(lane)
    if reporter, do: Telemetry.checked(reporter, {:deny, wait}, agent, channel, tier)
    violated(instance, reporter, agent, wait, in_a_row, sustained, %{channel: channel, tier: tier})
    {:deny, wait}
  end

  def report(answer, _instance, nil, _agent, _lane), do: answer

  def report(answer, _instance, reporter, agent, lane) do
    {channel, tier} = pair(lane)
    Telemetry.checked(reporter, answer, agent, channel, tier)
  end

  @doc "Reports a denial of all parts. It is one violation per agent, however many of its parts stand in the way."
  def report_all_denied(blocking, wait, instance, reporter) do
    if reporter do
      for {part, verdict} <- blocking do
        {channel, tier} = pair(elem(part, 1))
        Telemetry.checked(reporter, {:deny, elem(verdict, 1)}, elem(part, 0), channel, tier)
      end
    end

    counted = for {part, {:deny, _, in_a_row, sustained}} <- blocking, do: {part, in_a_row, sustained}

    for {agent, denials} <- Enum.group_by(counted, fn {part, _, _} -> elem(part, 0) end) do
      {channel, tier} = denials |> hd() |> elem(0) |> elem(1) |> pair()
      in_a_row = denials |> Enum.map(&elem(&1, 1)) |> Enum.max()
      sustained = Enum.any?(denials, &elem(&1, 2))
      violated(instance, reporter, agent, wait, in_a_row, sustained, %{channel: channel, tier: tier})
    end
  end

  @doc "Reports a violation: `lane` has the channel and the tier of a denial, and is empty for one that a caller found."
  def violated(instance, reporter, agent, wait, in_a_row, sustained, lane) do
    Telemetry.violated(reporter, %{retry_after_ms: wait, consecutive: in_a_row}, Map.put(lane, :agent_id, agent))
    Events.send(instance, :violation, Map.merge(lane, %{agent: agent, retry_after_ms: wait, in_a_row: in_a_row}))
    if sustained, do: Events.send(instance, :sustained_abuse, %{agent: agent, in_a_row: in_a_row})
    :ok
  end

  @doc "The state of a lane as the caller gets it."
  def state({remaining, capacity, next_in, full_in}) do
    %{remaining: remaining, capacity: capacity, next_in_ms: milliseconds(next_in), full_in_ms: milliseconds(full_in)}
  end

  def state(other), do: other

  @doc "A span of nanoseconds in milliseconds, rounded up."
  def milliseconds(:infinity), do: :infinity
  def milliseconds(span_ns), do: div(span_ns + 999_999, 1_000_000)

  # The NIF has found the lane, so it is one.
  defp pair(lane) when is_binary(lane), do: Policy.lane(lane)
  defp pair(lane), do: lane
end
