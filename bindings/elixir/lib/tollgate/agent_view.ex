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
  # The same with other lanes, and what follows from them.
  def with_lanes(view, change) do
    lanes = for lane <- view.lanes, do: lane |> change.() |> used()
    # Of those that let anything pass, the one of which the largest share is used; the first of several.
    dominant = lanes |> Enum.filter(&(&1.capacity > 0)) |> Enum.max_by(& &1.used_percent, fn -> nil end)
    %{view | lanes: lanes, dominant: dominant}
  end

  defp used(%{capacity: 0} = lane), do: %{lane | used_percent: 100.0, level: :red}

  defp used(%{capacity: capacity, remaining: remaining} = lane) do
    percent = max(0, capacity - remaining) * 100 / capacity
    level = if percent < 50, do: :green, else: if(percent <= 80, do: :yellow, else: :red)
    %{lane | used_percent: percent, level: level}
  end

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

# Compiled if your application has Jason: as the other languages write it, so that an id may be any bytes.
if Code.ensure_compiled(Jason.Encoder) == {:module, Jason.Encoder} do
  defimpl Jason.Encoder, for: [Tollgate.AgentView, Tollgate.Error] do
    def encode(%Tollgate.Error{} = error, _),
      do: Tollgate.JSON.encode(%{reason: error.reason, message: error.message})

    def encode(view, _options), do: Tollgate.JSON.encode(view)
  end
end
