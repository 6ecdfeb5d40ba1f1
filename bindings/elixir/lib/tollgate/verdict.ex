defmodule Tollgate.Verdict do
  @moduledoc false
  # Turns the NIF's answers into what callers get, and reports them to telemetry and subscribers.
  #
  # A denial of a request that was counted comes as `{:deny, wait, in_a_row, sustained_abuse}`: the last two are for
  # events, and the caller gets `{:deny, wait}`.

  alias Tollgate.{Actions, Events, Instance, Log, Native, Policy, Telemetry}

  @doc """
  Checks an action of a channel, or a lane if the channel is `nil`, for `Tollgate.Plug` and `Tollgate.Socket`: counted,
  in one call of the NIF, and reported. The answer is

      {decision, lane, remaining, capacity, wait_ms, full_in_ns, token_ns, cause, source}
      {:error, reason, lane}

  with the number of the lane; `cause` is `:conduct` if a denial is for the agent's conduct.
  """
  def decide({reference, reporter, _, aux} = entry, instance, agent, channel, action, cost, plan, counted \\ true) do
    case Native.decide(reference, agent, channel, action, cost, plan, counted) do
      {:deny, lane, remaining, capacity, wait, full_in, token, cause, source, in_a_row, sustained, unknown} ->
        {channel, tier, _} = elem(aux.lanes, lane)
        if unknown, do: Actions.log_unknown(action, channel, tier)
        if reporter, do: Telemetry.checked(reporter, {:deny, wait}, agent, channel, tier)
        if counted, do: violated(entry, instance, agent, wait, in_a_row, sustained, %{channel: channel, tier: tier})
        {:deny, lane, remaining, capacity, wait, full_in, token, cause, source}

      {:unknown, lane, answer} ->
        {channel, tier, _} = elem(aux.lanes, lane)
        Actions.log_unknown(action, channel, tier)
        reported(answer, reporter, agent, aux)

      nil ->
        Actions.unclassified(instance, channel)

      answer ->
        reported(answer, reporter, agent, aux)
    end
  end

  defp reported(answer, nil, _agent, _aux), do: answer
  defp reported({:error, _, _} = answer, _reporter, _agent, _aux), do: answer

  defp reported(answer, reporter, agent, aux) do
    {channel, tier, _} = elem(aux.lanes, elem(answer, 1))

    case answer do
      {:exempt, _} -> Telemetry.checked(reporter, {:allow, :exempt}, agent, channel, tier)
      _ -> Telemetry.checked(reporter, {elem(answer, 0), elem(answer, 2)}, agent, channel, tier)
    end

    answer
  end

  @doc "Checks, and returns all there is to know of the verdict as a map: for responses with headers."
  def ask(instance, agent, lane, options) do
    {reference, _, _, _} = entry = Instance.entry(instance)

    with %{} = verdict <- Native.verdict(reference, agent, lane, options) do
      report(counted(verdict), entry, instance, agent, lane)
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
  def report({:deny, wait, in_a_row, sustained}, {_, reporter, _, aux} = entry, instance, agent, lane) do
    {channel, tier} = pair(lane, aux)
    if reporter, do: Telemetry.checked(reporter, {:deny, wait}, agent, channel, tier)
    violated(entry, instance, agent, wait, in_a_row, sustained, %{channel: channel, tier: tier})
    {:deny, wait}
  end

  def report(answer, {_, nil, _, _}, _instance, _agent, _lane), do: answer

  def report(answer, {_, reporter, _, aux}, _instance, agent, lane) do
    {channel, tier} = pair(lane, aux)
    Telemetry.checked(reporter, answer, agent, channel, tier)
  end

  @doc "Reports a denial of all parts. It is one violation per agent, however many of its parts stand in the way."
  def report_all_denied(blocking, wait, {_, reporter, _, aux} = entry, instance) do
    if reporter do
      for {part, verdict} <- blocking do
        {channel, tier} = pair(elem(part, 1), aux)
        Telemetry.checked(reporter, {:deny, elem(verdict, 1)}, elem(part, 0), channel, tier)
      end
    end

    counted = for {part, {:deny, _, in_a_row, sustained}} <- blocking, do: {part, in_a_row, sustained}

    for {agent, denials} <- Enum.group_by(counted, fn {part, _, _} -> elem(part, 0) end) do
      {channel, tier} = denials |> hd() |> elem(0) |> elem(1) |> pair(aux)
      in_a_row = denials |> Enum.map(&elem(&1, 1)) |> Enum.max()
      sustained = Enum.any?(denials, &elem(&1, 2))
      violated(entry, instance, agent, wait, in_a_row, sustained, %{channel: channel, tier: tier})
    end
  end

  @doc "Reports a violation: `lane` has the channel and the tier of a denial, and is empty for one that a caller found."
  def violated({reference, reporter, _, aux}, instance, agent, wait, in_a_row, sustained, lane) do
    if reporter do
      Telemetry.violated(reporter, %{retry_after_ms: wait, consecutive: in_a_row}, Map.put(lane, :agent_id, agent))
    end

    if Events.wanted?(aux.events, :violation) do
      fields = Map.merge(lane, %{agent: agent, retry_after_ms: wait, in_a_row: in_a_row})
      Events.dispatch(aux.events, instance, :violation, fields)
    end

    if sustained, do: Events.send(instance, :sustained_abuse, %{agent: agent, in_a_row: in_a_row})
    if aux.log, do: Log.denied(reference, agent)
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

  # The NIF has found the lane, so it is one; by its number too.
  defp pair(lane, _aux) when is_binary(lane), do: Policy.lane(lane)
  defp pair(lane, aux) when is_integer(lane), do: aux.lanes |> elem(lane) |> then(&{elem(&1, 0), elem(&1, 1)})
  defp pair(lane, _aux), do: lane
end
