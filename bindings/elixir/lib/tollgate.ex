defmodule Tollgate do
  @moduledoc """
  An exact rate limiter: may this agent do that now?

      iex> Tollgate.check("agent-7", :ws, :normal)
      {:allow, 59}

  The application starts one instance, `Tollgate`, with the policy `:hub`. Give `config :tollgate, default: [...]` to
  start it with other options, `default: false` for none, and start more of them under your own supervisor:

      children = [{Tollgate, name: MyApp.Limiter, policy: :hub, agents: 100_000}]

  Every function has a form with the instance's name in front: `Tollgate.check(MyApp.Limiter, "agent-7", :ws, :normal)`.

  ## Options

    * `:name` - an atom; `Tollgate` if nothing is said;
    * `:policy` - what is limited, and to what: see `Tollgate.Policy`; `:hub` if nothing is said;
    * `:agents` - how many are active at the same time; 100,000 if nothing is said. The memory is reserved when the
      instance starts, 87 bytes an agent for up to 6 lanes, and is never exceeded;
    * `:on_full` - `:evict` (the default) or `:deny`: what happens to a newcomer when there is no room for it;
    * `:retry_after` - `:whole_seconds`, as the hub tells waits, or `:milliseconds`, which every other policy defaults to;
    * `:clock` - `:automatic` (the default), `:os`, `:coarse`, `:boottime`, or `:manual` for tests: see `advance_clock/2`;
    * `:id_hash` - `:multilinear` (the default), or `:siphash13` for ids chosen by those who can watch the limiter closely;
    * `:sweep_every_ms`, `:sweep_idle_ms` - agents that were idle for 10 minutes are forgotten every 5 minutes. `nil`
      for either never sweeps, which is fine: an idle agent gives way when its room is needed.

  ## Mistakes

  Arguments that make no sense raise `ArgumentError`, and nothing is charged. Two things that a right call can meet are
  answers: `{:error, :full}` (the agent is new, and nobody may be given up for it: with `on_full: :deny`, or if all
  others are registered), and `{:error, :cost_above_capacity}` (no wait will ever let that much through).
  """

  alias Tollgate.{Instance, Native}

  @typedoc "The name of an instance."
  @type instance :: atom
  @typedoc "Who is limited: 1 to 256 bytes, any bytes."
  @type agent :: binary
  @typedoc "The part of a lane's name before the last slash."
  @type channel :: atom
  @typedoc "The part of a lane's name after the last slash."
  @type tier :: atom
  @typedoc "What is left, or how long to wait; `:infinity` if no wait helps and waits are told in milliseconds."
  @type verdict ::
          {:allow, non_neg_integer}
          | {:warn, non_neg_integer}
          | {:deny, pos_integer | :infinity}
          | {:allow, :exempt}
          | {:error, :full | :cost_above_capacity}
  @typedoc "A request of a batch."
  @type request :: {agent, channel, tier} | {agent, channel, tier, cost :: pos_integer}
  @typedoc "A lane as it stands; times in milliseconds, rounded up."
  @type status :: %{
          remaining: non_neg_integer,
          capacity: non_neg_integer,
          next_in_ms: non_neg_integer | :infinity,
          full_in_ms: non_neg_integer
        }

  # Longer batches are split: see BATCH_MAX in c_src/nif.h.
  @batch 512

  @doc "Starts an instance under a supervisor; see the options above."
  @spec child_spec(keyword) :: Supervisor.child_spec()
  defdelegate child_spec(options), to: Instance

  @doc "Starts an instance linked to the caller; see the options above."
  @spec start_link(keyword) :: GenServer.on_start()
  defdelegate start_link(options \\ []), to: Instance

  @doc """
  May the agent do something on this lane now? Charges one token if so.

  `{:warn, remaining}` is allowed too, and near the limit.

      iex> Tollgate.check("agent-7", :http, :heavy)
      {:allow, 9}
      iex> for _ <- 1..9, do: Tollgate.check("agent-7", :http, :heavy)
      iex> Tollgate.check("agent-7", :http, :heavy)
      {:deny, 6000}
  """
  @spec check(agent, channel, tier) :: verdict
  def check(agent, channel, tier), do: check(Tollgate, agent, channel, tier)

  @doc """
  As `check/3`, of an instance; or with options: `cost:`, 1 if nothing is said. All of a cost is charged, or nothing.

      iex> Tollgate.check("agent-7", :http, :normal, cost: 10)
      {:allow, 50}
  """
  @spec check(instance, agent, channel, tier) :: verdict
  @spec check(agent, channel, tier, cost: pos_integer) :: verdict
  def check(agent, channel, tier, options) when is_list(options), do: check(Tollgate, agent, channel, tier, options)

  def check(instance, agent, channel, tier) do
    {reference, nil} = Instance.find(instance)
    Native.check(reference, agent, channel, tier)
  end

  @doc "As `check/4`, of an instance and with options."
  @spec check(instance, agent, channel, tier, cost: pos_integer) :: verdict
  def check(instance, agent, channel, tier, options) do
    {reference, nil} = Instance.find(instance)
    Native.check(reference, agent, channel, tier, cost(options))
  end

  @doc """
  Answers a batch as if its requests were checked one by one, all at the same instant.

  Faster than single checks where agents are many. If one of the requests makes no sense, it raises and charges none.
  Lists of more than #{@batch} requests are worked through in parts, so that other processes get their turn.

      iex> Tollgate.check_many([{"agent-7", :ws, :heavy}, {"agent-8", :ws, :heavy, 10}, {"agent-8", :ws, :heavy}])
      [{:allow, 9}, {:warn, 0}, {:deny, 6000}]
  """
  @spec check_many(instance, [request]) :: [verdict]
  def check_many(instance \\ Tollgate, requests) do
    {reference, nil} = Instance.find(instance)
    now = Native.now(reference)

    case parts(requests) do
      [part] ->
        Native.check_many(reference, part, now)

      parts ->
        Enum.each(parts, &Native.readable(reference, &1))
        Enum.flat_map(parts, &Native.check_many(reference, &1, now))
    end
  end

  defp parts(requests) when is_list(requests) and length(requests) > @batch, do: Enum.chunk_every(requests, @batch)
  defp parts(requests), do: [requests]

  @doc """
  Looks at a lane of an agent, without charging it or making the agent known.

      iex> Tollgate.check("agent-7", :ws, :heavy)
      iex> Tollgate.status("agent-7", :ws, :heavy)
      %{remaining: 9, capacity: 10, next_in_ms: 6000, full_in_ms: 6000}
  """
  @spec status(instance, agent, channel, tier) :: status
  def status(instance \\ Tollgate, agent, channel, tier) do
    {reference, nil} = Instance.find(instance)
    to_status(Native.status(reference, agent, {channel, tier}))
  end

  @doc """
  Gives tokens back, never beyond full, and tells how the lane then stands.

      iex> Tollgate.check("agent-7", :http, :heavy, cost: 8)
      iex> Tollgate.refund("agent-7", :http, :heavy, cost: 5)
      %{remaining: 7, capacity: 10, next_in_ms: 6000, full_in_ms: 18000}
  """
  @spec refund(instance, agent, channel, tier, cost: pos_integer) :: status | {:error, :cost_above_capacity}
  def refund(instance \\ Tollgate, agent, channel, tier, options) do
    {reference, nil} = Instance.find(instance)
    to_status(Native.refund(reference, agent, {channel, tier}, cost(options)))
  end

  @doc "What a lane of an agent holds when it is full, in tokens."
  @spec capacity(instance, agent, channel, tier) :: non_neg_integer
  def capacity(instance \\ Tollgate, agent, channel, tier) do
    status(instance, agent, channel, tier).capacity
  end

  @doc """
  Fills all lanes of the agent: its next check finds fresh ones.

      iex> Tollgate.check("agent-7", :ws, :light, cost: 100)
      iex> Tollgate.delete_agent_buckets("agent-7")
      iex> Tollgate.check("agent-7", :ws, :light)
      {:allow, 119}
  """
  @spec delete_agent_buckets(instance, agent) :: :ok
  def delete_agent_buckets(instance \\ Tollgate, agent) do
    {reference, nil} = Instance.find(instance)
    Native.reset(reference, agent)
  end

  @doc "Fills one lane of the agent."
  @spec reset(instance, agent, channel, tier) :: :ok
  def reset(instance \\ Tollgate, agent, channel, tier) do
    {reference, nil} = Instance.find(instance)
    Native.reset_lane(reference, agent, {channel, tier})
  end

  @doc "Forgets the agent, and says whether anything was known of it."
  @spec forget(instance, agent) :: boolean
  def forget(instance \\ Tollgate, agent) do
    {reference, nil} = Instance.find(instance)
    Native.forget(reference, agent)
  end

  @doc """
  What the instance holds and has seen, and the bytes that it has reserved.

  `lossy_evictions` that grow say that the instance was started for too few agents.
  """
  @spec stats(instance) :: %{atom => non_neg_integer}
  def stats(instance \\ Tollgate) do
    {reference, nil} = Instance.find(instance)
    keys = [:agents, :records, :claims, :idle_evictions, :lossy_evictions, :retries]
    values = Tuple.to_list(Native.stats(reference))
    Map.new([{:memory, Native.memory(reference)} | Enum.zip(keys, values)])
  end

  @doc "Forgets the agents that have been idle for so long, and says how many. Every instance does it by itself now and then."
  @spec sweep(instance, non_neg_integer) :: non_neg_integer
  def sweep(instance \\ Tollgate, idle_for_ms) do
    {reference, nil} = Instance.find(instance)
    Native.sweep(reference, idle_for_ms * 1_000_000)
  end

  @doc """
  Moves the clock of an instance that was started with `clock: :manual`. For tests: nobody has to sleep.

      iex> Tollgate.start_link(name: Later, clock: :manual)
      iex> for _ <- 1..10, do: Tollgate.check(Later, "agent-7", :ws, :heavy)
      iex> Tollgate.check(Later, "agent-7", :ws, :heavy)
      {:deny, 6000}
      iex> Tollgate.advance_clock(Later, 6_000)
      iex> Tollgate.check(Later, "agent-7", :ws, :heavy)
      {:warn, 0}
  """
  @spec advance_clock(instance, non_neg_integer) :: :ok
  def advance_clock(instance \\ Tollgate, by_ms) do
    {reference, nil} = Instance.find(instance)
    Native.advance_clock(reference, by_ms * 1_000_000)
  end

  @doc "What the instance's clock reads: `:tsc`, `:os`, `:coarse`, `:boottime` or `:manual`."
  @spec clock_source(instance) :: atom
  def clock_source(instance \\ Tollgate) do
    {reference, nil} = Instance.find(instance)
    Native.clock_source(reference)
  end

  defp cost(cost: cost), do: cost
  defp cost([]), do: 1
  defp cost(other), do: raise(ArgumentError, "the only option is cost:, got: #{inspect(other)}")

  defp to_status({remaining, capacity, next_in, full_in}) do
    %{remaining: remaining, capacity: capacity, next_in_ms: milliseconds(next_in), full_in_ms: milliseconds(full_in)}
  end

  defp to_status({:error, reason}), do: {:error, reason}

  defp milliseconds(:infinity), do: :infinity
  defp milliseconds(span_ns), do: div(span_ns + 999_999, 1_000_000)
end
