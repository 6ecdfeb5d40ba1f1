defmodule Tollgate.Telemetry do
  @moduledoc """
  Events through `:telemetry`, if your application has it.

  | event | measurements | metadata |
  |---|---|---|
  | `[:tollgate, :rate_limit, :check]` | `tokens_remaining` (0 if denied, absent if exempt) | `agent_id`, `channel`, `tier`, `result`: `:allow`, `:warn`, `:deny` or `:exempt` |
  | `[:tollgate, :rate_limit, :violation]` | `retry_after_ms`, `consecutive` | `agent_id`; of a denial also `channel`, `tier` |

  `retry_after_ms` is `:infinity` if no wait helps; `consecutive` is the number of violations in a row. The option
  `telemetry:` of an instance chooses:

    * `:all` - every check: the default of the policy `:hub`;
    * `:notable` - checks that warn or deny, and violations: the default of every other policy;
    * `:off` - nothing, and a check makes no call for it. The same if there is no `:telemetry`.

  An event costs more than the check itself. With `telemetry_prefix: [:agent_com]` the first event is named
  `[:agent_com, :rate_limit, :check]`.
  """

  @compile {:no_warn_undefined, :telemetry}

  @doc false
  # What an instance keeps for its checks: with `nil` they make no call at all.
  def reporter(:off, _prefix), do: nil

  def reporter(which, prefix) do
    if Code.ensure_loaded?(:telemetry) do
      {which, prefix ++ [:rate_limit, :check], prefix ++ [:rate_limit, :violation]}
    end
  end

  @doc false
  # Sends the event of a check, and returns its answer.
  def checked({:notable, _, _}, {:allow, _} = answer, _agent, _channel, _tier), do: answer
  def checked(_reporter, {:error, _} = answer, _agent, _channel, _tier), do: answer

  def checked({_, event, _}, answer, agent, channel, tier) do
    {result, measurements} =
      case answer do
        {:allow, :exempt} -> {:exempt, %{}}
        {:deny, _wait} -> {:deny, %{tokens_remaining: 0}}
        {result, remaining} -> {result, %{tokens_remaining: remaining}}
      end

    :telemetry.execute(event, measurements, %{agent_id: agent, channel: channel, tier: tier, result: result})
    answer
  end

  @doc false
  def violated(nil, _measurements, _metadata), do: :ok
  def violated({_, _, event}, measurements, metadata), do: :telemetry.execute(event, measurements, metadata)
end
