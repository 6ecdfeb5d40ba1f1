defmodule Tollgate.Hub do
  @moduledoc """
  The functions of the limiter inside a certain message hub, under the names that the hub calls them by: a drop-in for
  its own module. Each is a thin form of a function elsewhere; new code calls those.

  They ask the instance `Tollgate`, or another one that is given first. The hub gives waits in whole seconds, in
  milliseconds, and a minute where no wait helps: an instance with the policy `:hub` does. An agent may be a number or
  an atom, and its id of any length, as in `Tollgate.Socket`.
  """

  alias Tollgate.{Actions, Conduct, Control, Id, Instance, Native, Policy}

  @typedoc "Who is limited; see above."
  @type agent :: binary | integer | atom

  @doc """
  May the agent do this now? As `Tollgate.check/4`.

      iex> Tollgate.Hub.check("agent-1", :ws, :normal)
      {:allow, 59}
  """
  @spec check(Tollgate.instance(), agent, Tollgate.channel(), Tollgate.tier()) :: Tollgate.verdict()
  def check(instance \\ Tollgate, agent, channel, tier), do: Tollgate.check(instance, Id.agent(agent), {channel, tier})

  @doc """
  Records a denial as a violation, and returns how long the agent should wait. As `Tollgate.Conduct.record_violation/3`.

      iex> for _ <- 1..6, do: Tollgate.Hub.record_violation("agent-1")
      [1000, 2000, 5000, 10000, 30000, 30000]
  """
  @spec record_violation(Tollgate.instance(), agent) :: non_neg_integer | {:error, :full | :busy}
  def record_violation(instance \\ Tollgate, agent), do: Conduct.record_violation(instance, Id.agent(agent))

  @doc """
  Whether the scheduler passes the agent over. As `Tollgate.Conduct.rate_limited?/3`.

      iex> Tollgate.Hub.rate_limited?("agent-1")
      false
  """
  @spec rate_limited?(Tollgate.instance(), agent) :: boolean
  def rate_limited?(instance \\ Tollgate, agent), do: Conduct.rate_limited?(instance, Id.agent(agent))

  @doc "Forgives the agent all violations. As `Tollgate.Conduct.reset_violations/2`."
  @spec reset_violations(Tollgate.instance(), agent) :: :ok
  def reset_violations(instance \\ Tollgate, agent), do: Conduct.reset_violations(instance, Id.agent(agent))

  @doc """
  Whether the agent is never limited. As `Tollgate.Control.exempt?/2`.

      iex> Tollgate.Hub.exempt?("dashboard")
      true
  """
  @spec exempt?(Tollgate.instance(), agent) :: boolean
  def exempt?(instance \\ Tollgate, agent), do: Control.exempt?(instance, Id.agent(agent))

  @doc "The exempt agents. As `Tollgate.Control.allowlist/1`."
  @spec whitelist(Tollgate.instance()) :: [Tollgate.agent()]
  def whitelist(instance \\ Tollgate), do: Control.allowlist(instance)

  @doc "Exempts exactly these agents, and the dashboard. As `Tollgate.Control.set_allowlist/2`."
  @spec update_whitelist(Tollgate.instance(), [agent]) :: :ok | {:error, Tollgate.Error.t()}
  def update_whitelist(instance \\ Tollgate, agents) do
    unless is_list(agents) and not List.improper?(agents) do
      raise ArgumentError, "the agents have to be a list, got: #{inspect(agents)}"
    end

    Control.set_allowlist(instance, Enum.map(agents, &Id.agent/1))
  end

  @doc """
  What a lane of the agent holds when it is full; `:infinity` if the agent is exempt. `Tollgate.peek/4` has it.

      iex> Tollgate.Hub.capacity("agent-1", :ws, :light)
      120
  """
  @spec capacity(Tollgate.instance(), agent, Tollgate.channel(), Tollgate.tier()) ::
          non_neg_integer | :infinity
  def capacity(instance \\ Tollgate, agent, channel, tier) do
    case Tollgate.peek(instance, Id.agent(agent), {channel, tier}) do
      :exempt -> :infinity
      %{capacity: capacity} -> capacity
    end
  end

  @doc """
  The limit of a lane of the agent: capacity, and refill per millisecond, both in thousandths of a token; `:exempt` if
  it is never limited. `Tollgate.Control.limit_of/3` has it as text.

      iex> Tollgate.Hub.get_limits("agent-1", :ws, :light)
      {120_000, 2.0}
  """
  @spec get_limits(Tollgate.instance(), agent, Tollgate.channel(), Tollgate.tier()) ::
          {non_neg_integer, float} | :exempt
  def get_limits(instance \\ Tollgate, agent, channel, tier) do
    case Control.limit_of(instance, Id.agent(agent), {channel, tier}) do
      nil -> :exempt
      limit -> in_thousandths(limit)
    end
  end

  @doc """
  Fills all lanes of the agent. As `Tollgate.reset/3`.

      iex> Tollgate.check(Tollgate, "agent-1", {:ws, :light}, cost: 100)
      iex> Tollgate.Hub.delete_agent_buckets("agent-1")
      iex> Tollgate.Hub.check("agent-1", :ws, :light)
      {:allow, 119}
  """
  @spec delete_agent_buckets(Tollgate.instance(), agent) :: :ok
  def delete_agent_buckets(instance \\ Tollgate, agent), do: Tollgate.reset(instance, Id.agent(agent))

  @doc """
  The tier of a WebSocket message. As `Tollgate.Actions.lane_for/3`.

      iex> for message <- ["ping", :task_complete, "identify"], do: Tollgate.Hub.ws_tier(message)
      [:light, :normal, :heavy]
  """
  @spec ws_tier(Tollgate.instance(), String.t() | atom) :: Tollgate.tier()
  def ws_tier(instance \\ Tollgate, action), do: elem(Actions.lane_for(instance, :ws, action), 1)

  @doc """
  The tier of an HTTP action, such as `get_agents`. As `Tollgate.Actions.lane_for/3`.

      iex> Tollgate.Hub.http_tier("post_task")
      :heavy
  """
  @spec http_tier(Tollgate.instance(), String.t() | atom) :: Tollgate.tier()
  def http_tier(instance \\ Tollgate, action), do: elem(Actions.lane_for(instance, :http, action), 1)

  @doc """
  The limit of a tier by the policy, in the units of `get_limits/3`.

      iex> Tollgate.Hub.defaults(:light)
      {120_000, 2.0}
      iex> {10_000, heavy} = Tollgate.Hub.defaults(:heavy)
      iex> Float.round(heavy, 4)
      0.1667
  """
  @spec defaults(Tollgate.instance(), Tollgate.tier()) :: {non_neg_integer, float}
  def defaults(instance \\ Tollgate, tier) do
    {reference, _} = Instance.find(instance)

    case Enum.find(Native.lanes(reference), fn {name, _limit} -> elem(Policy.pair(name), 1) == tier end) do
      nil -> raise ArgumentError, "the policy of #{inspect(instance)} has no tier #{inspect(tier)}"
      {_name, limit} -> in_thousandths(limit)
    end
  end

  defp in_thousandths(limit) do
    {capacity, tokens, per_ns} = numbers(limit)
    {capacity * 1_000, tokens * 1_000 / (per_ns / 1_000_000)}
  end

  @units %{
    # A month of a budget is as long as the calendar says. As a rate it has 30 days.
    "month" => 2_592_000_000_000_000,
    "week" => 604_800_000_000_000,
    "day" => 86_400_000_000_000,
    "d" => 86_400_000_000_000,
    "hour" => 3_600_000_000_000,
    "h" => 3_600_000_000_000,
    "minute" => 60_000_000_000,
    "min" => 60_000_000_000,
    "second" => 1_000_000_000,
    "s" => 1_000_000_000,
    "millisecond" => 1_000_000,
    "ms" => 1_000_000,
    "microsecond" => 1_000,
    "us" => 1_000,
    "nanosecond" => 1,
    "ns" => 1
  }

  @doc false
  # The numbers of a limit as the limiter writes it: `{capacity, tokens, per_ns}`. A window or a budget, which comes
  # back as a whole, is given as a bucket of the same rate. Time gives back nothing that is held.
  def numbers("deny"), do: {0, 0, 1}
  def numbers("unlimited"), do: {0xFFFF_FFFF_FFFF_FFFF, 0, 1}
  def numbers("held " <> slots), do: {String.to_integer(slots), 0, 1}

  def numbers(limit) do
    pattern = ~r{^(?:window |exact |budget )?(\d+)/(\d*)([a-z]+)(?: burst (\d+))?(?: oversize debt| zone .*)?$}
    [_, tokens, count, unit | burst] = Regex.run(pattern, limit)
    tokens = String.to_integer(tokens)
    per = if(count == "", do: 1, else: String.to_integer(count)) * Map.fetch!(@units, unit)
    {if(burst == [], do: tokens, else: String.to_integer(hd(burst))), tokens, per}
  end
end
