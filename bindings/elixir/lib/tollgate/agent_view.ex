defmodule Tollgate.AgentView do
  @moduledoc """
  How one agent stands, as a card on a dashboard shows it: `Tollgate.agent/1`.

    * `agent`, `plan`, `exempt`, `rate_limited`, `violations`, `consecutive`;
    * `lanes` - in the order of the policy, each with `channel`, `tier`, `limit` (a text), `override` (whether the limit is
      the agent's own), `remaining`, `capacity`, `used_percent`, `full_in_ms` and `level`: `:green` below 50 %, `:yellow` up
      to 80 %, `:red` above. None if the agent is exempt;
    * `dominant` - the lane that is nearest to its limit, or `nil`: of those that let anything pass, the one of which the
      largest share is used.
  """

  alias Tollgate.{Instance, Native, Policy}

  defstruct [:agent, :plan, :exempt, :rate_limited, :violations, :consecutive, :lanes, :dominant]

  @type t :: %__MODULE__{}

  @doc false
  def of(instance, agent) do
    {reference, _} = Instance.find(instance)
    {plan, overrides, exempt} = Native.assignment(reference, agent)
    {violations, consecutive, _, _, _} = Native.violations(reference, agent)
    own = Map.new(overrides)
    names = if exempt, do: [], else: Native.lanes(reference)
    lanes = for {{name, _}, at} <- Enum.with_index(names), do: lane(reference, agent, at, name, own)

    %__MODULE__{
      agent: agent,
      plan: plan,
      exempt: exempt,
      rate_limited: Native.rate_limited(reference, agent),
      violations: violations,
      consecutive: consecutive,
      lanes: lanes,
      dominant: lanes |> Enum.filter(&(&1.capacity > 0)) |> Enum.max_by(& &1.used_percent, &>=/2, fn -> nil end)
    }
  end

  defp lane(reference, agent, at, name, own) do
    {channel, tier} = Policy.pair(name)

    # It may have become exempt a moment ago.
    {remaining, capacity, full_in} =
      case Native.status(reference, agent, at, nil) do
        {remaining, capacity, _next_in, full_in} -> {remaining, capacity, full_in}
        :exempt -> {0, 0, 0}
      end

    used = max(capacity - remaining, 0)

    %{
      channel: channel,
      tier: tier,
      limit: Native.limit_of(reference, agent, at),
      override: Map.has_key?(own, name),
      remaining: remaining,
      capacity: capacity,
      used_percent: if(capacity == 0, do: 100.0, else: used * 100 / capacity),
      full_in_ms: div(full_in + 999_999, 1_000_000),
      level: level(used, capacity)
    }
  end

  defp level(used, capacity) when capacity == 0 or used * 100 > capacity * 80, do: :red
  defp level(used, capacity) when used * 100 >= capacity * 50, do: :yellow
  defp level(_used, _capacity), do: :green
end
