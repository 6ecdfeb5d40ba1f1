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
    * `:commit_memory` - `true` to take all of that, and the memory of a `:roster`, from the system when the instance
      starts, which fails if there is not enough. If nothing is said the VM grows as agents come, and the first one on a
      page waits for it, for up to half a millisecond and more. What `:budgets` take is committed as it is used;
    * `:on_full` - `:evict` (the default) or `:deny`: what happens to a newcomer when there is no room for it;
    * `:retry_after` - `:whole_seconds`, as the hub tells waits, or `:milliseconds`, which every other policy defaults to;
    * `:clock` - `:automatic` (the default), `:os`, `:coarse`, `:boottime`, or `:manual` for tests: see `advance_clock/2`;
    * `:id_hash` - `:multilinear` (the default), or `:siphash13` for ids chosen by those who can watch the limiter closely;
    * `:store` - the path of a DETS file that keeps plans, overrides and exemptions across restarts; none if nothing is
      said. What it holds is in force before the first check;
    * `:budgets` - the path of a file that keeps across restarts what was used of budgets; none if nothing is said. It is
      read before the first check, and written every `:save_budgets_every_ms` (5,000) and when the instance is stopped: if
      the VM is killed, what was charged since the last time is lost. Takes 272 bytes more for each agent;
    * `:always_exempt` - agents that are never limited, whatever `update_whitelist/1` says: `["dashboard"]` for the hub;
    * `:sight` - `true` to count verdicts by lane and worst offenders, for `snapshot/0` and `top_offenders/1`; costs each
      check some nanoseconds, and 700 kB;
    * `:roster` - with `sight: true`: the ids of up to so many agents are written down, for `agents/1`, 272 bytes each; 0 if
      nothing is said;
    * `:reservations` - how many may be open at once: see `reserve/5`; 16,384 if nothing is said, 64 bytes each;
    * `:reservations_per_agent` - how many of them one agent may have; one in 64 of all if nothing is said, but at least 16;
    * `:log` - `true` to log denials, few lines of them: the first of an agent, then how many there were in a minute, and a
      summary every five minutes;
    * `:telemetry`, `:telemetry_prefix` - which events go to `:telemetry`: see `Tollgate.Telemetry`;
    * `:sweep_every_ms`, `:sweep_idle_ms` - agents that were idle for 10 minutes are forgotten every 5 minutes. `nil`
      for either never sweeps, which is fine: an idle agent gives way when its room is needed.

  ## Mistakes

  Arguments that make no sense raise `ArgumentError`, and nothing is charged. Two things that a right call can meet are
  answers: `{:error, :full}` (the agent is new, and nobody may be given up for it: with `on_full: :deny`, or if all
  others are registered), and `{:error, :cost_above_capacity}` (no wait will ever let that much through).
  """

  alias Tollgate.{Events, Holds, Instance, Native, Telemetry}

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
  @typedoc """
  All was charged, with a verdict on each part; or nothing, with the longest wait and the parts that stand in the way, as
  they were given.
  """
  @type all_verdict ::
          {:allow | :warn, [verdict]}
          | {:deny, pos_integer | :infinity, [request]}
          | {:error, :full | :cost_above_capacity}
  @typedoc "What `reserve/5` gave: it works until it is settled or its time has passed, and never again."
  @type reservation :: non_neg_integer
  @typedoc """
  What became of a reservation: `unused` was given back, `overspent` was used beyond it and charged, `left` is still
  reserved.
  """
  @type settlement :: %{unused: non_neg_integer, overspent: non_neg_integer, left: non_neg_integer}
  @typedoc "A lane as it stands; times in milliseconds, rounded up. `:exempt` if the agent is never limited."
  @type status ::
          %{
            remaining: non_neg_integer,
            capacity: non_neg_integer,
            next_in_ms: non_neg_integer | :infinity,
            full_in_ms: non_neg_integer
          }
          | :exempt
  @typedoc """
  `cost:`, 1 if nothing is said; and `plan:`, a name: the plan that applies if the agent is assigned to none, for what
  is known only with the request.
  """
  @type options :: [cost: pos_integer, plan: String.t() | atom]
  @typedoc "A lane by its name, or a tier for its lanes in every channel; `:heavy`, `\"ws/heavy\"`, `{:ws, :heavy}`."
  @type lane_or_tier :: atom | String.t() | {channel, tier}
  @typedoc "What was decided about an agent."
  @type assignment :: %{plan: String.t() | nil, overrides: %{String.t() => Tollgate.Policy.limit()}, exempt: boolean}

  # Longer batches are split: see BATCH_MAX in c_src/nif.h.
  @batch 512

  # In the order of c_src/sight.c.
  @snapshot [
    :allowed,
    :warned,
    :denied,
    :exempt,
    :errors,
    :full,
    :violations,
    :violations_last_hour,
    :sustained_abuse,
    :agents,
    :records,
    :claims,
    :idle_evictions,
    :lossy_evictions,
    :retries,
    :agents_assigned,
    :agents_overridden,
    :agents_exempt,
    :unknown_actions,
    :events_dropped,
    :clock_fallbacks
  ]

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
  def check(agent, channel, tier) do
    case :persistent_term.get(Tollgate, nil) do
      {reference, nil, _} -> Native.check(reference, agent, channel, tier)
      found -> report(found, Tollgate, agent, channel, tier)
    end
  end

  @doc """
  As `check/3`, of an instance; or with options: see `t:options/0`. All of a cost is charged, or nothing.

      iex> Tollgate.check("agent-7", :http, :normal, cost: 10)
      {:allow, 50}
  """
  @spec check(instance, agent, channel, tier) :: verdict
  @spec check(agent, channel, tier, options) :: verdict
  def check(agent, channel, tier, options) when is_list(options), do: check(Tollgate, agent, channel, tier, options)

  def check(instance, agent, channel, tier) do
    case :persistent_term.get(instance, nil) do
      {reference, nil, _} -> Native.check(reference, agent, channel, tier)
      found -> report(found, instance, agent, channel, tier)
    end
  end

  defp report(nil, instance, _agent, _channel, _tier), do: raise(ArgumentError, Instance.not_started(instance))

  defp report({reference, reporter, _}, _instance, agent, channel, tier) do
    Telemetry.checked(reporter, Native.check(reference, agent, channel, tier), agent, channel, tier)
  end

  @doc "As `check/4`, of an instance and with options."
  @spec check(instance, agent, channel, tier, options) :: verdict
  def check(instance, agent, channel, tier, options) do
    {reference, reporter} = Instance.find(instance)
    {plan, cost} = plan_and_cost(options)
    answer = Native.check(reference, agent, channel, tier, plan, cost)
    if reporter, do: Telemetry.checked(reporter, answer, agent, channel, tier), else: answer
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
    {reference, reporter} = Instance.find(instance)
    answers = check_parts(reference, parts(requests), Native.now(reference))
    if reporter, do: Enum.each(Enum.zip(requests, answers), &report_one(reporter, &1))
    answers
  end

  defp check_parts(reference, [part], now), do: Native.check_many(reference, part, now)

  defp check_parts(reference, parts, now) do
    Enum.each(parts, &Native.readable(reference, &1))
    Enum.flat_map(parts, &Native.check_many(reference, &1, now))
  end

  defp report_one(reporter, {{agent, channel, tier, _cost}, answer}) do
    report_one(reporter, {{agent, channel, tier}, answer})
  end

  defp report_one(reporter, {{agent, channel, tier}, answer}) do
    Telemetry.checked(reporter, answer, agent, channel, tier)
  end

  defp parts(requests) when is_list(requests) and length(requests) > @batch, do: Enum.chunk_every(requests, @batch)
  defp parts(requests), do: [requests]

  @doc """
  May all of this be done now? Charges every part, or none: several lanes of an agent, or of a user, a team and an
  organisation; up to 16 parts.

  A caller that is alone is denied only if a part stands in the way. Of callers that cross, each may meet what the other is
  about to take back, and both may be denied once.

      iex> Tollgate.check_all([{"agent-7", :ws, :light}, {"team-1", :http, :heavy, 8}])
      {:allow, [{:allow, 119}, {:allow, 2}]}
      iex> Tollgate.check_all([{"agent-7", :ws, :light}, {"team-1", :http, :heavy, 8}])
      {:deny, 36000, [{"team-1", :http, :heavy, 8}]}
      iex> Tollgate.status("agent-7", :ws, :light).remaining
      119
  """
  @spec check_all(instance, [request]) :: all_verdict
  def check_all(instance \\ Tollgate, parts), do: all(instance, parts, false)

  @doc """
  As `check_all/1`, and a denial is recorded as a violation of each agent that stands in the way: see `admit/3`.

      iex> Tollgate.admit_all([{"agent-7", :ws, :heavy, 10}, {"agent-8", :ws, :heavy}])
      iex> Tollgate.admit_all([{"agent-7", :ws, :heavy, 1}, {"agent-8", :ws, :heavy}])
      {:deny, 6000, [{"agent-7", :ws, :heavy, 1}]}
      iex> {Tollgate.rate_limited?("agent-7"), Tollgate.rate_limited?("agent-8")}
      {true, false}
  """
  @spec admit_all(instance, [request]) :: all_verdict
  def admit_all(instance \\ Tollgate, parts), do: all(instance, parts, true)

  defp all(instance, parts, admit) do
    {reference, reporter} = Instance.find(instance)

    case Native.check_all(reference, parts, admit) do
      {:deny, answers, wait, _retry_after, blocking, abusive} ->
        told = fn places -> for at <- places, do: Enum.at(parts, at) end
        if reporter, do: for(at <- blocking, do: report_one(reporter, {Enum.at(parts, at), Enum.at(answers, at)}))
        if admit, do: violated_all(instance, reference, reporter, told.(blocking), told.(abusive), wait)
        {:deny, wait, told.(blocking)}

      {decision, answers, _wait, _retry_after, [], []} ->
        if reporter, do: Enum.each(Enum.zip(parts, answers), &report_one(reporter, &1))
        {if(decision == :warn, do: :warn, else: :allow), answers}

      error ->
        error
    end
  end

  # One violation an agent, however many of its parts stand in the way.
  defp violated_all(instance, reference, reporter, blocking, abusive, wait) do
    abusive = Enum.map(abusive, &elem(&1, 0))

    for part <- Enum.uniq_by(blocking, &elem(&1, 0)) do
      agent = elem(part, 0)
      {_violations, consecutive, _, _, _} = Native.violations(reference, agent)
      told = %{retry_after_ms: wait, consecutive: consecutive}
      violated(instance, reporter, agent, told, agent in abusive, %{channel: elem(part, 1), tier: elem(part, 2)})
    end
  end

  @doc """
  Takes a slot of a lane whose limit is `"held 3"` or the like, until `release/3` gives it back: for what outlives the
  calling process. `hold/3` gives it back by itself.

  Time gives nothing back, so no wait is told: somebody has to release a slot. An agent that holds one keeps its record.

      iex> Tollgate.start_link(name: Acquired, policy: [lanes: [{"ws/connections", "held 1"}]])
      iex> Tollgate.acquire(Acquired, "agent-7", :ws, :connections)
      {:warn, 0}
      iex> Tollgate.acquire(Acquired, "agent-7", :ws, :connections)
      {:deny, :infinity}
      iex> Tollgate.release(Acquired, "agent-7", :ws, :connections).remaining
      1
      iex> Tollgate.release(Acquired, "agent-7", :ws, :connections)
      {:error, :not_held}
  """
  @spec acquire(instance, agent, channel, tier) :: verdict
  def acquire(instance \\ Tollgate, agent, channel, tier) do
    {reference, reporter} = Instance.find(instance)
    answer = Native.acquire(reference, agent, {channel, tier})
    if reporter, do: Telemetry.checked(reporter, answer, agent, channel, tier), else: answer
  end

  @doc "Gives a slot back, once for each that was acquired, and tells how the lane then stands."
  @spec release(instance, agent, channel, tier) :: status | {:error, :not_held}
  def release(instance \\ Tollgate, agent, channel, tier) do
    {reference, _} = Instance.find(instance)
    to_status(Native.release(reference, agent, {channel, tier}))
  end

  @doc """
  Takes a slot for the calling process, which is given back when the process ends, however it ends, or by `let_go/3`.

      iex> Tollgate.start_link(name: Held, policy: [lanes: [{"ws/connections", "held 1"}]])
      iex> Task.await(Task.async(fn -> Tollgate.hold(Held, "agent-7", :ws, :connections) end))
      {:warn, 0}
      iex> Tollgate.hold(Held, "agent-7", :ws, :connections)
      {:warn, 0}
      iex> Tollgate.hold(Held, "agent-7", :ws, :connections)
      {:deny, :infinity}
      iex> Tollgate.let_go(Held, "agent-7", :ws, :connections).remaining
      1
  """
  @spec hold(agent, channel, tier) :: verdict
  def hold(agent, channel, tier), do: hold(Tollgate, agent, channel, tier, [])

  @doc """
  As `hold/3`, of an instance; or with the option `owner:`, a process of this node that the slot belongs to instead: for
  those who accept connections on behalf of others.
  """
  @spec hold(instance, agent, channel, tier) :: verdict
  @spec hold(agent, channel, tier, owner: pid) :: verdict
  def hold(agent, channel, tier, options) when is_list(options), do: hold(Tollgate, agent, channel, tier, options)
  def hold(instance, agent, channel, tier), do: hold(instance, agent, channel, tier, [])

  @doc "As `hold/4`, of an instance and with the option `owner:`."
  @spec hold(instance, agent, channel, tier, owner: pid) :: verdict
  def hold(instance, agent, channel, tier, options) do
    {_, reporter} = Instance.find(instance)
    answer = Holds.hold(instance, agent, {channel, tier}, owner(options))
    if reporter, do: Telemetry.checked(reporter, answer, agent, channel, tier), else: answer
  end

  @doc """
  Gives back a slot that the calling process, or the `owner:`, got by `hold/3`, and tells how the lane then stands.
  """
  @spec let_go(instance, agent, channel, tier, owner: pid) :: status | {:error, :not_held}
  def let_go(instance, agent, channel, tier, options) do
    to_status(Holds.let_go(instance, agent, {channel, tier}, owner(options)))
  end

  @doc "As `let_go/5`."
  @spec let_go(instance, agent, channel, tier) :: status | {:error, :not_held}
  @spec let_go(agent, channel, tier, owner: pid) :: status | {:error, :not_held}
  def let_go(agent, channel, tier, options) when is_list(options), do: let_go(Tollgate, agent, channel, tier, options)
  def let_go(instance, agent, channel, tier), do: let_go(instance, agent, channel, tier, [])

  @doc "As `let_go/5`."
  @spec let_go(agent, channel, tier) :: status | {:error, :not_held}
  def let_go(agent, channel, tier), do: let_go(Tollgate, agent, channel, tier, [])

  # One of another node could not be told from one that lost its connection.
  defp owner([]), do: self()
  defp owner(owner: pid) when is_pid(pid) and node(pid) == node(), do: pid

  defp owner(other),
    do: raise(ArgumentError, "the option is owner:, a process of this node, got: #{inspect(other)}")

  @doc """
  Charges an estimate now, to be settled by `commit/2` when the cost is known, or by `cancel/1` if nothing came of it: for
  calls to language models and whatever else costs what it costs only at the end.

  If neither happens within `ttl_ms`, the estimate stays charged: to disconnect is not free. For lanes that are buckets,
  windows or budgets.

      iex> Tollgate.start_link(name: Reserved, clock: :manual, policy: [lanes: [{"llm/tokens", "budget 10_000/day"}]])
      iex> {:allow, 6_000, reservation} = Tollgate.reserve(Reserved, "user:42", :llm, :tokens, 4_000, 60_000)
      iex> Tollgate.commit_part(Reserved, reservation, 500)
      {:ok, %{unused: 0, overspent: 0, left: 3500}}
      iex> Tollgate.commit(Reserved, reservation, 700)
      {:ok, %{unused: 2800, overspent: 0, left: 0}}
      iex> Tollgate.status(Reserved, "user:42", :llm, :tokens).remaining
      8800
      iex> Tollgate.commit(Reserved, reservation, 700)
      {:error, :unknown_reservation}
  """
  @spec reserve(instance, agent, channel, tier, estimate :: pos_integer, ttl_ms :: pos_integer) ::
          {:allow | :warn, non_neg_integer, reservation}
          | {:allow, :exempt, reservation}
          | {:deny, pos_integer | :infinity}
          | {:error, :full | :cost_above_capacity | :reservations_full | :too_many_reservations}
  def reserve(instance \\ Tollgate, agent, channel, tier, estimate, ttl_ms) do
    {reference, reporter} = Instance.find(instance)

    case Native.reserve(reference, agent, {channel, tier}, estimate, nanoseconds(ttl_ms)) do
      {decision, remaining, _, _, _, wait, reservation} ->
        verdict = short(%{decision: decision, remaining: remaining, retry_after_ms: wait})
        if reporter, do: Telemetry.checked(reporter, verdict, agent, channel, tier)
        if reservation, do: Tuple.append(verdict, reservation), else: verdict

      error ->
        error
    end
  end

  @doc """
  Settles a reservation: `used` is what it came to, beyond what `commit_part/2` has told already. The rest is given back;
  what is more than was reserved is charged, into debt if need be, and told as `overspent`.

  Of a bucket, what time has paid back since the reservation is not given back again: others may have spent it. What a
  reset has forgiven is not given back either.

  More than a hundred times the lane's capacity beyond what was reserved is `:used_too_large`: a mistake of units, most
  likely. `:full` says that something is overspent, and there is no record to charge it to: commit again later. With
  either of them nothing has changed.
  """
  @spec commit(instance, reservation, used :: non_neg_integer) ::
          {:ok, settlement} | {:error, :unknown_reservation | :used_too_large | :full}
  def commit(instance \\ Tollgate, reservation, used), do: settle(&Native.commit/3, instance, reservation, used)

  @doc """
  Tells that so much of a reservation was used, and keeps the rest reserved: for answers that stream. What is more than was
  reserved is charged at once.
  """
  @spec commit_part(instance, reservation, used :: non_neg_integer) ::
          {:ok, settlement} | {:error, :unknown_reservation | :used_too_large | :full}
  def commit_part(instance \\ Tollgate, reservation, used),
    do: settle(&Native.commit_part/3, instance, reservation, used)

  @doc "Gives a reservation back, but for what `commit_part/2` has told already."
  @spec cancel(instance, reservation) :: {:ok, settlement} | {:error, :unknown_reservation}
  def cancel(instance \\ Tollgate, reservation), do: settle(&Native.commit/3, instance, reservation, 0)

  @doc "Gives a reservation `ttl_ms` from now, if that is later than it had."
  @spec extend(instance, reservation, ttl_ms :: pos_integer) :: :ok | {:error, :unknown_reservation}
  def extend(instance \\ Tollgate, reservation, ttl_ms) do
    {reference, _} = Instance.find(instance)
    Native.extend(reference, reservation, nanoseconds(ttl_ms))
  end

  defp settle(native, instance, reservation, used) do
    {reference, _} = Instance.find(instance)

    with {unused, overspent, left} <- native.(reference, reservation, used) do
      {:ok, %{unused: unused, overspent: overspent, left: left}}
    end
  end

  @doc """
  Writes what was used of budgets to the file of the option `:budgets` now: before a VM is halted, say.

  `unsaved` budgets are of agents that had a record before there was a file.
  """
  @spec save_budgets(instance) ::
          {:ok, %{saved: non_neg_integer, unsaved: non_neg_integer}} | {:error, Tollgate.Error.t()}
  def save_budgets(instance \\ Tollgate) do
    {reference, _} = Instance.find(instance)

    case Native.save_budgets(reference) do
      {:error, message} -> {:error, %Tollgate.Error{reason: :budgets, message: message}}
      {saved, unsaved} -> {:ok, %{saved: saved, unsaved: unsaved}}
    end
  end

  # Longer than any clock runs, and still a number of nanoseconds.
  @ttl_ms_max 1_000_000_000_000

  defp nanoseconds(ttl_ms) when is_integer(ttl_ms) and ttl_ms in 1..@ttl_ms_max, do: ttl_ms * 1_000_000

  defp nanoseconds(other) do
    raise ArgumentError,
          "the time to live is a whole number of milliseconds from 1 to #{@ttl_ms_max}, got: #{inspect(other)}"
  end

  @doc """
  Looks at a lane of an agent, without charging it or making the agent known.

      iex> Tollgate.check("agent-7", :ws, :heavy)
      iex> Tollgate.status("agent-7", :ws, :heavy)
      %{remaining: 9, capacity: 10, next_in_ms: 6000, full_in_ms: 6000}
  """
  @spec status(instance, agent, channel, tier) :: status
  def status(instance \\ Tollgate, agent, channel, tier) do
    {reference, _} = Instance.find(instance)
    to_status(Native.status(reference, agent, {channel, tier}, nil))
  end

  @doc """
  Gives tokens back, never beyond full, and tells how the lane then stands.

      iex> Tollgate.check("agent-7", :http, :heavy, cost: 8)
      iex> Tollgate.refund("agent-7", :http, :heavy, cost: 5)
      %{remaining: 7, capacity: 10, next_in_ms: 6000, full_in_ms: 18000}
  """
  @spec refund(instance, agent, channel, tier, options) :: status | {:error, :cost_above_capacity}
  def refund(instance \\ Tollgate, agent, channel, tier, options) do
    {reference, _} = Instance.find(instance)
    {plan, cost} = plan_and_cost(options)
    to_status(Native.refund(reference, agent, {channel, tier}, plan, cost))
  end

  @doc """
  What a lane of an agent holds when it is full, in tokens; `:infinity` if the agent is exempt.

      iex> Tollgate.capacity("agent-7", :ws, :light)
      120
  """
  @spec capacity(instance, agent, channel, tier) :: non_neg_integer | :infinity
  def capacity(instance \\ Tollgate, agent, channel, tier) do
    case status(instance, agent, channel, tier) do
      :exempt -> :infinity
      %{capacity: capacity} -> capacity
    end
  end

  @doc """
  The agent's limit for a lane, by its override, its plan or the policy: capacity, and refill a millisecond, both in
  thousandths of a token; `:exempt` if it is never limited. `limit_of/3` gives it as a text.

      iex> Tollgate.get_limits("agent-7", :ws, :light)
      {120_000, 2.0}
  """
  @spec get_limits(instance, agent, channel, tier) :: {non_neg_integer, float} | :exempt
  def get_limits(instance \\ Tollgate, agent, channel, tier) do
    case limit_of(instance, agent, channel, tier) do
      nil -> :exempt
      limit -> Tollgate.Config.in_thousandths(limit)
    end
  end

  @doc """
  The agent's limit for a lane as a text, or `nil` if it is exempt.

      iex> Tollgate.limit_of("agent-7", :ws, :heavy)
      "10/minute"
  """
  @spec limit_of(instance, agent, channel, tier) :: Tollgate.Policy.limit() | nil
  def limit_of(instance \\ Tollgate, agent, channel, tier) do
    {reference, _} = Instance.find(instance)
    Native.limit_of(reference, agent, {channel, tier})
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
    {reference, _} = Instance.find(instance)
    :ok = Native.reset(reference, agent)
    Events.send(instance, :change, %{what: :reset, agent: agent})
  end

  @doc """
  Fills one lane of the agent. What is reserved of it has nothing to give back any more. Slots that are held stay held.

      iex> Tollgate.check("agent-7", :ws, :light, cost: 100)
      iex> Tollgate.reset("agent-7", :ws, :light)
      :ok
      iex> Tollgate.status("agent-7", :ws, :light).remaining
      120
  """
  @spec reset(instance, agent, channel, tier) :: :ok
  def reset(instance \\ Tollgate, agent, channel, tier) do
    {reference, _} = Instance.find(instance)
    Native.reset_lane(reference, agent, {channel, tier})
  end

  @doc """
  Forgets the agent, closes its reservations, and says whether anything was known of it. Slots that are held stay held:
  an agent that holds one keeps its record, with all other lanes filled.

      iex> Tollgate.check("agent-7", :ws, :light)
      iex> {Tollgate.forget("agent-7"), Tollgate.forget("agent-7")}
      {true, false}
  """
  @spec forget(instance, agent) :: boolean
  def forget(instance \\ Tollgate, agent) do
    {reference, _} = Instance.find(instance)
    Native.forget(reference, agent)
  end

  @doc """
  As `check/3`, and a denial is recorded as a violation: the wait grows from one to the next, and the agent is
  `rate_limited?/1` until it has been quiet for a while.

  The wait is the longer of the lane's own and the violation's.

      iex> for _ <- 1..60, do: Tollgate.admit("agent-7", :ws, :normal)
      iex> for _ <- 1..6, do: Tollgate.admit("agent-7", :ws, :normal)
      [deny: 1000, deny: 2000, deny: 5000, deny: 10000, deny: 30000, deny: 30000]
      iex> Tollgate.rate_limited?("agent-7")
      true
  """
  @spec admit(agent, channel, tier) :: verdict
  def admit(agent, channel, tier), do: admit(Tollgate, agent, channel, tier, [])

  @doc "As `admit/3`, of an instance, or with options."
  @spec admit(instance, agent, channel, tier) :: verdict
  @spec admit(agent, channel, tier, options) :: verdict
  def admit(agent, channel, tier, options) when is_list(options), do: admit(Tollgate, agent, channel, tier, options)
  def admit(instance, agent, channel, tier), do: admit(instance, agent, channel, tier, [])

  @doc "As `admit/4`, of an instance and with options."
  @spec admit(instance, agent, channel, tier, options) :: verdict
  def admit(instance, agent, channel, tier, options) do
    short(admission(instance, agent, channel, tier, options))
  end

  defp short(%{decision: :deny, retry_after_ms: wait}), do: {:deny, wait}
  defp short(%{decision: :exempt}), do: {:allow, :exempt}
  defp short(%{decision: decision, remaining: remaining}), do: {decision, remaining}
  defp short(error), do: error

  @doc false
  # As `admit`, with everything there is to tell of it: for responses with headers.
  def admission(instance, agent, channel, tier, options) do
    {reference, reporter} = Instance.find(instance)
    {plan, cost} = plan_and_cost(options)

    with {decision, remaining, capacity, _, full_in, wait, {_, _, _, consecutive, sustained}} <-
           Native.admit(reference, agent, {channel, tier}, plan, cost) do
      seen = %{
        decision: decision,
        remaining: remaining,
        capacity: capacity,
        full_in_ms: milliseconds(full_in),
        retry_after_ms: wait,
        consecutive: consecutive
      }

      if reporter, do: Telemetry.checked(reporter, short(seen), agent, channel, tier)
      if decision == :deny, do: violated(instance, reporter, agent, seen, sustained, %{channel: channel, tier: tier})
      seen
    end
  end

  defp violated(instance, reporter, agent, violation, sustained, lane) do
    told = Map.take(violation, [:retry_after_ms, :consecutive])
    Telemetry.violated(reporter, told, Map.put(lane, :agent_id, agent))
    Events.send(instance, :violation, lane |> Map.merge(told) |> Map.put(:agent, agent))
    if sustained, do: Events.send(instance, :sustained_abuse, %{agent: agent, consecutive: told.consecutive})
  end

  @doc """
  Records a violation that the caller has found, and tells how long the agent should wait, in milliseconds.

      iex> for _ <- 1..6, do: Tollgate.record_violation("agent-7")
      [1000, 2000, 5000, 10000, 30000, 30000]
  """
  @spec record_violation(instance, agent) :: pos_integer | {:error, :full}
  def record_violation(instance \\ Tollgate, agent) do
    {reference, reporter} = Instance.find(instance)

    with {wait, _wait_ns, _step_ns, consecutive, sustained} <- Native.record_violation(reference, agent) do
      violated(instance, reporter, agent, %{retry_after_ms: wait, consecutive: consecutive}, sustained, %{})
      wait
    end
  end

  @doc """
  The agent's conduct as it stands: its violations in the present window of the abuse threshold, those in a row, and
  what is left of the wait that the last one brought, up to an eighth of a second more than was told.

      iex> Tollgate.record_violation("agent-7")
      iex> %{violations: 1, consecutive: 1} = Tollgate.violations("agent-7")
  """
  @spec violations(instance, agent) :: %{
          violations: non_neg_integer,
          consecutive: non_neg_integer,
          wait_ms: non_neg_integer
        }
  def violations(instance \\ Tollgate, agent) do
    {reference, _} = Instance.find(instance)
    {violations, consecutive, _window_start, _last, wait} = Native.violations(reference, agent)
    %{violations: violations, consecutive: consecutive, wait_ms: milliseconds(wait)}
  end

  @doc """
  Whether the agent has violated a limit and has not been quiet since: a scheduler gives it no new work.

      iex> Tollgate.rate_limited?("agent-7")
      false
  """
  @spec rate_limited?(instance, agent) :: boolean
  def rate_limited?(instance \\ Tollgate, agent) do
    {reference, _} = Instance.find(instance)
    Native.rate_limited(reference, agent)
  end

  @doc """
  Those of the agents that may be given new work: all that are not `rate_limited?/1`, in the same order.

      iex> Tollgate.record_violation("agent-7")
      iex> Tollgate.assignable(["agent-7", "agent-8"])
      ["agent-8"]
  """
  @spec assignable(instance, [agent]) :: [agent]
  def assignable(instance \\ Tollgate, agents) do
    {reference, _} = Instance.find(instance)
    agents |> parts() |> Enum.flat_map(&Native.assignable(reference, &1))
  end

  @doc """
  Forgives the agent all violations.

      iex> Tollgate.record_violation("agent-7")
      iex> Tollgate.reset_violations("agent-7")
      :ok
      iex> Tollgate.rate_limited?("agent-7")
      false
  """
  @spec reset_violations(instance, agent) :: :ok
  def reset_violations(instance \\ Tollgate, agent) do
    {reference, _} = Instance.find(instance)
    _known = Native.reset_violations(reference, agent)
    :ok
  end

  @doc """
  How the agent stands, on all lanes and in its conduct: see `Tollgate.AgentView`. Charges nothing.

      iex> Tollgate.check("agent-7", :ws, :heavy, cost: 6)
      iex> %{dominant: %{tier: :heavy, used_percent: 60.0, level: :yellow}} = Tollgate.agent("agent-7")
  """
  @spec agent(instance, agent) :: Tollgate.AgentView.t()
  def agent(instance \\ Tollgate, agent), do: Tollgate.AgentView.of(instance, agent)

  @doc """
  Whether the agent is never limited.

      iex> Tollgate.exempt?("dashboard")
      true
  """
  @spec exempt?(instance, agent) :: boolean
  def exempt?(instance \\ Tollgate, agent) do
    {reference, _} = Instance.find(instance)
    Native.exempt(reference, agent)
  end

  @doc """
  Never limits the agent from now on.

  This and the other changes hold for the next check in every process, and for the next start of the instance if it has
  a `:store`.

      iex> Tollgate.exempt("agent-7")
      iex> Tollgate.check("agent-7", :ws, :light)
      {:allow, :exempt}
      iex> Tollgate.unexempt("agent-7")
      iex> Tollgate.check("agent-7", :ws, :light)
      {:allow, 119}
  """
  @spec exempt(instance, agent) :: :ok | {:error, Tollgate.Error.t()}
  def exempt(instance \\ Tollgate, agent), do: Instance.control(instance, {:agent, agent, {:exempt, true}})

  @doc """
  Limits the agent again, by its overrides and its plan.

      iex> Tollgate.unexempt("agent-7")
      :ok
  """
  @spec unexempt(instance, agent) :: :ok | {:error, Tollgate.Error.t()}
  def unexempt(instance \\ Tollgate, agent), do: Instance.control(instance, {:agent, agent, {:exempt, false}})

  @doc """
  Exempts exactly these agents, beside those that the instance always exempts.

      iex> Tollgate.update_whitelist(["agent-7"])
      iex> Tollgate.whitelist()
      ["agent-7", "dashboard"]
      iex> Tollgate.update_whitelist([])
      iex> Tollgate.whitelist()
      ["dashboard"]
  """
  @spec update_whitelist(instance, [agent]) :: :ok | {:error, Tollgate.Error.t()}
  def update_whitelist(instance \\ Tollgate, agents) do
    unless is_list(agents) and Enum.all?(agents, &is_binary/1) do
      raise ArgumentError, "the agents have to be a list of binaries, got: #{inspect(agents)}"
    end

    Instance.control(instance, {:exempt_exactly, agents})
  end

  @doc "The exempt agents, sorted."
  @spec whitelist(instance) :: [agent]
  def whitelist(instance \\ Tollgate) do
    {reference, _} = Instance.find(instance)
    for {agent, {_, _, true}} <- Native.assignments(reference), do: agent
  end

  @doc """
  Gives the agent a limit of its own for a lane, or for a tier in every channel.

      iex> Tollgate.set_override("agent-7", :heavy, "100/minute")
      :ok
      iex> Tollgate.check("agent-7", :http, :heavy)
      {:allow, 99}
      iex> {:error, %Tollgate.Error{reason: :bad_limit}} = Tollgate.set_override("agent-7", :heavy, "0/minute")
      iex> Tollgate.remove_overrides("agent-7")
      iex> Tollgate.check("agent-7", :http, :heavy)
      {:allow, 9}
  """
  @spec set_override(instance, agent, lane_or_tier, Tollgate.Policy.limit()) :: :ok | {:error, Tollgate.Error.t()}
  def set_override(instance \\ Tollgate, agent, lane_or_tier, limit) do
    Instance.control(instance, {:agent, agent, {:override, lane_name(lane_or_tier), limit}})
  end

  @doc """
  Takes the agent's own limit for a lane or tier away.

      iex> Tollgate.set_override("agent-7", :heavy, "100/minute")
      iex> Tollgate.remove_override("agent-7", "ws/heavy")
      iex> {Tollgate.capacity("agent-7", :ws, :heavy), Tollgate.capacity("agent-7", :http, :heavy)}
      {10, 100}
      iex> Tollgate.remove_overrides("agent-7")
      :ok
  """
  @spec remove_override(instance, agent, lane_or_tier) :: :ok | {:error, Tollgate.Error.t()}
  def remove_override(instance \\ Tollgate, agent, lane_or_tier) do
    Instance.control(instance, {:agent, agent, {:no_override, lane_name(lane_or_tier)}})
  end

  @doc "Takes all of the agent's own limits away."
  @spec remove_overrides(instance, agent) :: :ok | {:error, Tollgate.Error.t()}
  def remove_overrides(instance \\ Tollgate, agent),
    do: Instance.control(instance, {:agent, agent, {:no_override, nil}})

  @doc """
  Assigns the agent to a plan of the policy; `nil` takes its plan away.

      iex> Tollgate.assign("agent-7", :unauthenticated)
      iex> Tollgate.check("agent-7", :http, :heavy)
      {:allow, 4}
      iex> Tollgate.assign("agent-7", nil)
      iex> Tollgate.check("agent-7", :http, :heavy)
      {:allow, 9}
  """
  @spec assign(instance, agent, String.t() | atom) :: :ok | {:error, Tollgate.Error.t()}
  def assign(instance \\ Tollgate, agent, plan) do
    Instance.control(instance, {:agent, agent, {:assign, plan_name(plan)}})
  end

  @doc """
  What was decided about the agent.

      iex> Tollgate.assignment("agent-7")
      %{plan: nil, overrides: %{}, exempt: false}
  """
  @spec assignment(instance, agent) :: assignment
  def assignment(instance \\ Tollgate, agent) do
    {reference, _} = Instance.find(instance)
    to_assignment(Native.assignment(reference, agent))
  end

  @doc """
  Every agent about which something was decided.

      iex> Tollgate.assignments()
      %{"dashboard" => %{plan: nil, overrides: %{}, exempt: true}}
  """
  @spec assignments(instance) :: %{agent => assignment}
  def assignments(instance \\ Tollgate) do
    {reference, _} = Instance.find(instance)
    Map.new(Native.assignments(reference), fn {agent, decided} -> {agent, to_assignment(decided)} end)
  end

  @doc """
  The names of the policy's plans; `"default"` comes first.

      iex> Tollgate.plans()
      ["default", "unauthenticated"]
  """
  @spec plans(instance) :: [String.t()]
  def plans(instance \\ Tollgate) do
    {reference, _} = Instance.find(instance)
    Native.plans(reference)
  end

  @doc """
  Puts another policy in force: other numbers for the same lanes, and perhaps more plans. Assignments stay.

  It holds until the instance is stopped: the next start takes the policy of its options.

      iex> Tollgate.start_link(name: Changed, policy: [lanes: [{"api/read", "10/minute"}]])
      iex> Tollgate.replace_policy(Changed, lanes: [{"api/read", "20/minute"}])
      :ok
      iex> Tollgate.capacity(Changed, "agent-7", :api, :read)
      20
  """
  @spec replace_policy(instance, Tollgate.Policy.t()) :: :ok | {:error, Tollgate.Error.t()}
  def replace_policy(instance \\ Tollgate, policy), do: Instance.control(instance, {:policy, policy})

  @doc """
  What the instance holds and has done, all at one time, in all and by lane. Counts of verdicts and violations need
  `sight: true`; without it they are 0 and `counting` is `false`.

      iex> Tollgate.start_link(name: Seen, sight: true)
      iex> Tollgate.check(Seen, "agent-7", :ws, :light)
      iex> %{allowed: 1, lanes: %{{:ws, :light} => %{allowed: 1, denied: 0}}} = Tollgate.snapshot(Seen)
  """
  @spec snapshot(instance) :: map
  def snapshot(instance \\ Tollgate) do
    {reference, _} = Instance.find(instance)
    {counting, numbers, verdicts} = Native.snapshot(reference)
    pairs = for {name, _limit} <- Native.lanes(reference), do: Tollgate.Policy.pair(name)

    lanes =
      for {pair, {allowed, warned, denied, exempt}} <- Enum.zip(pairs, verdicts), into: %{} do
        {pair, %{allowed: allowed, warned: warned, denied: denied, exempt: exempt}}
      end

    Map.new([{:counting, counting}, {:lanes, lanes} | Enum.zip(@snapshot, numbers)])
  end

  @doc "As `agents/2`, of the instance `Tollgate`, or without options."
  @spec agents(instance | keyword) :: map
  def agents(instance_or_options \\ [])
  def agents(options) when is_list(options), do: agents(Tollgate, options)
  def agents(instance), do: agents(instance, [])

  @doc """
  A page of the agents that hold a record, each as `agent/1` shows it; needs `sight: true` and a `roster:`.

    * `prefix:`, `contains:` - only those whose id begins so, or has this in it;
    * `sort:` - `:id` (the default), `:usage` (those first whose dominant lane is nearest to its limit) or `:violations`;
    * `page:`, `per_page:` - 0 is the first page; 100 agents a page by default. A page has at most 200: more gives 200.

  `matched` says how many there are on all pages, `not_listed` how many hold a record and are not on the roster. It reads
  the whole roster: for people, and not for requests.

      iex> Tollgate.start_link(name: Listed, sight: true, roster: 1_000)
      iex> for agent <- ["user:1", "user:2", "bot:1"], do: Tollgate.check(Listed, agent, :ws, :light)
      iex> %{agents: [%{agent: "user:1"}, %{agent: "user:2"}], matched: 2, not_listed: 0} =
      ...>   Tollgate.agents(Listed, prefix: "user:")
  """
  @spec agents(instance, keyword) :: %{
          agents: [Tollgate.AgentView.t()],
          matched: non_neg_integer,
          not_listed: non_neg_integer
        }
  def agents(instance, options) do
    {reference, _} = Instance.find(instance)
    defaults = [prefix: "", contains: "", sort: :id, page: 0, per_page: 100]

    unless Keyword.keyword?(options) and Keyword.keys(options) -- Keyword.keys(defaults) == [] do
      raise ArgumentError, "the options are #{inspect(Keyword.keys(defaults))}, got: #{inspect(options)}"
    end

    [prefix, part, sort, page, per_page] = for {key, default} <- defaults, do: Keyword.get(options, key, default)
    {agents, matched, not_listed} = Native.agents(reference, prefix, part, sort, page, per_page)
    %{agents: Enum.map(agents, &agent(instance, &1)), matched: matched, not_listed: not_listed}
  end

  @doc """
  What an operator wants to know, as JSON: counts, worst offenders, busiest agents. Needs `sight: true` for most of it.

      iex> Tollgate.start_link(name: Told, sight: true)
      iex> Tollgate.status_document(Told) =~ ~s("agents")
      true
  """
  @spec status_document(instance) :: String.t()
  def status_document(instance \\ Tollgate) do
    {reference, _} = Instance.find(instance)
    Native.status_document(reference)
  end

  @doc """
  Replaces a file by the `status_document/0`, in one step: whoever reads it finds the old one or the new one. Call it from a
  timer.
  """
  @spec write_status(instance, Path.t()) :: :ok | {:error, File.posix()}
  def write_status(instance \\ Tollgate, path) do
    temporary = "#{path}.#{System.unique_integer([:positive])}.new"

    with :ok <- File.write(temporary, status_document(instance), [:sync]),
         {:error, _} = error <- File.rename(temporary, path) do
      File.rm(temporary)
      error
    end
  end

  @doc """
  An agent's id as it is safely shown: in a log (`:text`), in `:html`, as the `:label` of a metric, in a `:url` or in
  `:json`. Ids are any bytes, and whoever chose one may have chosen it for what it does there.

      iex> {Tollgate.shown("<b>\\n", :html), Tollgate.shown("a b/c", :url), Tollgate.shown(<<255>>, :json)}
      {"&lt;b&gt;\\\\n", "a%20b%2Fc", ~s({"base64": "/w=="})}
  """
  @spec shown(agent, :text | :html | :label | :url | :json) :: String.t()
  def shown(agent, where \\ :text), do: Native.shown(agent, where)

  @doc """
  The agents with the most violations in the last hour, the worst first; needs `sight: true`.

  Each has at most `violations`, and at least so many less `error`.

      iex> Tollgate.start_link(name: Offended, sight: true)
      iex> for _ <- 1..3, do: Tollgate.record_violation(Offended, "agent-7")
      iex> Tollgate.top_offenders(Offended, 3)
      %{violations: 3, agents: [%{agent: "agent-7", violations: 3, error: 0}]}
  """
  @spec top_offenders(instance, non_neg_integer) :: %{violations: non_neg_integer, agents: [map]}
  def top_offenders(instance \\ Tollgate, most) do
    {reference, _} = Instance.find(instance)
    {total, agents} = Native.top_offenders(reference, most)
    agents = for {agent, violations, error} <- agents, do: %{agent: agent, violations: violations, error: error}
    %{violations: total, agents: agents}
  end

  @doc """
  What the instance holds and has seen, and the bytes that it has reserved.

  `lossy_evictions` that grow say that the instance was started for too few agents.
  """
  @spec stats(instance) :: %{atom => non_neg_integer}
  def stats(instance \\ Tollgate) do
    {reference, _} = Instance.find(instance)
    keys = [:agents, :records, :claims, :idle_evictions, :lossy_evictions, :retries]
    values = Tuple.to_list(Native.stats(reference))
    Map.new([{:memory, Native.memory(reference)} | Enum.zip(keys, values)])
  end

  @doc "Forgets the agents that have been idle for so long, and says how many. Every instance does it by itself now and then."
  @spec sweep(instance, non_neg_integer) :: non_neg_integer
  def sweep(instance \\ Tollgate, idle_for_ms) do
    {reference, _} = Instance.find(instance)
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
    {reference, _} = Instance.find(instance)
    Native.advance_clock(reference, by_ms * 1_000_000)
  end

  @doc "What the instance's clock reads: `:tsc`, `:os`, `:coarse`, `:boottime` or `:manual`."
  @spec clock_source(instance) :: atom
  def clock_source(instance \\ Tollgate) do
    {reference, _} = Instance.find(instance)
    Native.clock_source(reference)
  end

  defp plan_and_cost(options) do
    case Keyword.split(options, [:cost, :plan]) do
      {known, []} -> {plan_name(known[:plan]), Keyword.get(known, :cost, 1)}
      {_, other} -> raise ArgumentError, "the options are cost: and plan:, got: #{inspect(other)}"
    end
  end

  defp plan_name(nil), do: nil
  defp plan_name(plan) when is_atom(plan), do: Atom.to_string(plan)
  defp plan_name(plan), do: plan

  defp lane_name(name) when is_binary(name), do: name
  defp lane_name({channel, tier}) when is_atom(channel) and is_atom(tier), do: Tollgate.Policy.name({channel, tier})
  defp lane_name(tier) when is_atom(tier) and tier != nil, do: Atom.to_string(tier)
  defp lane_name(other), do: raise(ArgumentError, "a lane or tier is a text or an atom, got: #{inspect(other)}")

  defp to_status({remaining, capacity, next_in, full_in}) do
    %{remaining: remaining, capacity: capacity, next_in_ms: milliseconds(next_in), full_in_ms: milliseconds(full_in)}
  end

  defp to_status(other), do: other

  defp to_assignment({plan, overrides, exempt}), do: %{plan: plan, overrides: Map.new(overrides), exempt: exempt}

  defp milliseconds(:infinity), do: :infinity
  defp milliseconds(span_ns), do: div(span_ns + 999_999, 1_000_000)
end
