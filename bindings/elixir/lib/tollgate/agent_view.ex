defmodule Tollgate.AgentView do
  @moduledoc """
  One agent, as a card on a dashboard shows it: `Tollgate.Observe.agent/2`.

    * `agent`, `plan`, `exempt`;
    * `rate_limited`, `in_window`, `in_a_row` - its conduct, as in `Tollgate.Conduct.of/2`;
    * `lanes` - in the order of the policy, each with `channel`, `tier`, `limit` (its text), `override` (whether the
      limit is the agent's own), `remaining`, `capacity`, `used_percent`, `full_in_ms` and `level`: `:green` below 50 %,
      `:yellow` up to 80 %, `:red` above. Empty if the agent is exempt;
    * `dominant` - the lane that is nearest to its limit, or `nil`: of those that let anything pass, the one of which
      the largest share is used.
  """

  alias Tollgate.Verdict

  defstruct [:agent, :plan, :exempt, :rate_limited, :in_window, :in_a_row, :lanes, :dominant]

  @type t :: %__MODULE__{}

  @doc false
  # From what the NIF says of it, all at one instant.
  def new(agent, view) do
    lanes = Enum.map(view.lanes, &lane/1)

    %__MODULE__{
      agent: agent,
      plan: view.plan,
      exempt: view.exempt,
      rate_limited: view.rate_limited,
      in_window: view.in_window,
      in_a_row: view.in_a_row,
      lanes: lanes,
      dominant: view.dominant && Enum.at(lanes, view.dominant)
    }
  end

  defp lane({{channel, tier}, limit, override, remaining, capacity, used_percent, level, full_in_ns}) do
    %{
      channel: channel,
      tier: tier,
      limit: limit,
      override: override,
      remaining: remaining,
      capacity: capacity,
      used_percent: used_percent,
      level: level,
      full_in_ms: Verdict.milliseconds(full_in_ns)
    }
  end
end
