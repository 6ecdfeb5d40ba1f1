defmodule Tollgate do
  @moduledoc """
  An exact rate limiter: may this agent do that now?

      children = [{Tollgate, name: MyApp.Limiter, policy: :hub, agents: 100_000}]

      Tollgate.check(MyApp.Limiter, "agent-7", {:ws, :normal})
      # {:allow, 59}

  `Tollgate.Options` lists what an instance can be started with, `Tollgate.Policy` how to write limits. The application
  starts one instance by itself, named `Tollgate`, with the policy `:hub`: `config :tollgate, default: [...]` gives it
  other options, `default: false` leaves it out.

  ## One question

  Every verb takes an instance, an agent and a lane, and the same options:

    * `cost:` - how many tokens. All of them are charged, or none. Default: 1;
    * `plan:` - the plan that applies if the agent has none assigned, as a string or an atom: for what is known only
      with the request, such as how the caller has authenticated;
    * `at:` - the instant of the request, in nanoseconds on the instance's clock: see `now/1`. Default: now;
    * `limit:` - the limit by which the call is answered, on a lane that the policy declares `"dynamic"`: a text such as
      `"3/minute burst 5"`, or what `call_limit!/1` makes of it once for many calls. Default: the lane's own;
    * `counted:` - `true` if a denial counts against the agent's conduct: its waits grow, and it is
      `Tollgate.Conduct.rate_limited?/2` until it has been quiet for a while. Default: `false`.

  A lane is `{channel, tier}`, as atoms, or its name as a string: `{:ws, :normal}` is `"ws/normal"`. A lane whose name
  has no slash has the channel `nil`.

  ## Where to find the rest

  | module | idea |
  |---|---|
  | `Tollgate.Conduct` | violations, and which agents may be given work |
  | `Tollgate.Control` | plans, overrides, exemptions, another policy, all while it runs |
  | `Tollgate.Observe` | counts, agents, worst offenders, a report |
  | `Tollgate.Events`, `Tollgate.Telemetry` | what happens, as messages and as `:telemetry` events |
  | `Tollgate.Plug`, `Tollgate.Socket` | HTTP requests and WebSocket messages |
  | `Tollgate.Redis` | limits that machines share through a Redis or Valkey |
  | `Tollgate.Hub` | the function names of the message hub that the policy `:hub` is made for |

  ## Several VMs

  Two VMs are two limiters, and each admits the whole limit. With `shared:` they are one:

      {Tollgate, name: MyApp.Limiter, policy: policy, shared: "/run/tollgate/slab"}

  Records, limits, plans, overrides, exemptions, reservations and conduct are then in a file in memory that all VMs of
  the machine map. The lanes and their kinds, `clock:` and `on_full:` have to be the same everywhere, and no VM may ask
  for more `agents:` or `reservations:` than the first. Limits that differ are no error: the first policy stays in
  force, until one with a higher `version:` comes, or `Tollgate.Control.replace_policy/2` replaces it for all. A VM that
  is killed at any moment leaves nothing behind that blocks the others, and the slots that it held come back.

  A `store:` and `budgets:` are for one of the VMs alone. What the others decide is in its store within two seconds.

  ## Several machines

  With `redis:` machines share limits through a Redis or Valkey, within a bound that is stated: see `Tollgate.Redis`.

  ## Mistakes

  Invalid arguments raise `ArgumentError`, and nothing is charged. Some things that can happen to a valid call are
  answers: `{:error, :full}` (the agent is new and no record is free for it: with `on_full: :deny`, or if all others are
  assigned), `{:error, :cost_above_capacity}` (no wait will ever let that much through), `{:error, :no_limit}` (the lane
  is dynamic and has no default, and the call brings no limit), `{:error, :limit_given}` (the lane is not dynamic),
  `{:error, :bad_limit}` (numbers that are out of range), of `check_all/3` `{:error, :limits_differ}` (for one lane of
  one agent), and, of an instance that is
  `shared:`, `{:error, :busy}` (another VM is stopped while it holds a lock that a new agent needs: try again) and, of
  `hold/4`, `{:error, :holds_full}` (as many calls hold slots as there are agents, and at least 16,384).
  """

  alias Tollgate.{Events, Holds, Instance, Native, Policy, Verdict}

  @typedoc "The name of an instance."
  @type instance :: atom
  @typedoc "Who is limited: 1 to 256 bytes, any bytes."
  @type agent :: binary
  @typedoc "The part of a lane's name before the last slash."
  @type channel :: atom
  @typedoc "The part of a lane's name after the last slash."
  @type tier :: atom
  @typedoc "One limited resource of an agent: `{:ws, :normal}` or `\"ws/normal\"`."
  @type lane :: {channel, tier} | String.t()
  @typedoc "The options of every verb; see above."
  @type options :: [
          cost: pos_integer,
          plan: String.t() | atom,
          limit: call_limit,
          at: non_neg_integer,
          counted: boolean
        ]
  @typedoc """
  The limit that a call brings along: a text such as `"3/minute burst 5"`, or how many tokens at once, and how many more
  every so many nanoseconds.
  """
  @type call_limit :: String.t() | {capacity :: pos_integer, count :: pos_integer, period_ns :: pos_integer}
  @typedoc "Why a call was not answered; see \"Mistakes\"."
  @type refusal ::
          :full
          | :busy
          | :holds_full
          | :cost_above_capacity
          | :no_limit
          | :limit_given
          | :limits_differ
          | :bad_limit
  @typedoc """
  How many tokens are left, or how many milliseconds to wait, rounded up; `:infinity` if no wait helps.

  `{:warn, remaining}` is allowed too, and near the limit.
  """
  @type verdict ::
          {:allow, non_neg_integer}
          | {:warn, non_neg_integer}
          | {:deny, pos_integer | :infinity}
          | {:allow, :exempt}
          | {:error, refusal}
  @typedoc "One of several requests; `cost:`, `plan:` and `limit:` are its own, `at:` and `counted:` are the call's."
  @type request :: {agent, lane} | {agent, lane, [cost: pos_integer, plan: String.t() | atom, limit: call_limit]}
  @typedoc """
  All parts were charged, with a verdict on each; or none, with the longest wait and the parts that stand in the way.
  """
  @type all_verdict ::
          {:allow | :warn, [verdict]}
          | {:deny, pos_integer | :infinity, [request]}
          | {:error, refusal}
  @typedoc "The state of a lane; times in milliseconds, rounded up. `:exempt` if the agent is never limited."
  @type state ::
          %{
            remaining: non_neg_integer,
            capacity: non_neg_integer,
            next_in_ms: non_neg_integer | :infinity,
            full_in_ms: non_neg_integer
          }
          | :exempt
  @typedoc "What `reserve/5` returns: valid until it is settled or its time has passed, and never again."
  @type reservation :: non_neg_integer
  @typedoc """
  What became of a reservation: `unused` was given back, `overspent` was used beyond it and charged, `left` is still
  reserved.
  """
  @type settlement :: %{unused: non_neg_integer, overspent: non_neg_integer, left: non_neg_integer}

  # Longer lists are split: see BATCH_MAX in c_src/nif.h.
  @batch 512

  @doc "Starts an instance under a supervisor; see `Tollgate.Options`."
  @spec child_spec(keyword) :: Supervisor.child_spec()
  defdelegate child_spec(options), to: Instance

  @doc "Starts an instance linked to the caller; see `Tollgate.Options`."
  @spec start_link(keyword) :: GenServer.on_start()
  defdelegate start_link(options \\ []), to: Instance

  @doc """
  May the agent do this on this lane now? Charges the lane if so.

      iex> Tollgate.check(Tollgate, "agent-7", {:http, :heavy})
      {:allow, 9}
      iex> Tollgate.check(Tollgate, "agent-7", {:http, :heavy}, cost: 9)
      {:warn, 0}
      iex> Tollgate.check(Tollgate, "agent-7", {:http, :heavy})
      {:deny, 6000}

  With `counted: true` the wait of a denial is the longer of the lane's own and the one that the agent's conduct brings:

      iex> for _ <- 1..60, do: Tollgate.check(Tollgate, "agent-8", {:ws, :normal}, counted: true)
      iex> for _ <- 1..6, do: Tollgate.check(Tollgate, "agent-8", {:ws, :normal}, counted: true)
      [deny: 1000, deny: 2000, deny: 5000, deny: 10000, deny: 30000, deny: 30000]
  """
  @spec check(instance, agent, lane, options) :: verdict
  def check(instance, agent, lane, options \\ [])

  # The common case takes the short way: nothing is parsed, nothing is reported.
  def check(instance, agent, {channel, tier} = lane, []) do
    case :persistent_term.get(instance, nil) do
      {reference, nil, _, _} -> Native.check(reference, agent, channel, tier)
      _ -> ask(&Native.ask/4, instance, agent, lane, [])
    end
  end

  def check(instance, agent, lane, options), do: ask(&Native.ask/4, instance, agent, lane, options)

  defp ask(native, instance, agent, lane, options) do
    {reference, _, _, _} = entry = Instance.entry(instance)
    Verdict.report(native.(reference, agent, lane, options), entry, instance, agent, lane)
  end

  @doc """
  Reads a limit once, for the option `limit:` of many calls. Raises `ArgumentError` if it is no plain bucket.

      iex> limit = Tollgate.call_limit!("3/minute burst 5")
      {5, 1, 20_000_000_000}
      iex> {:ok, _} = Tollgate.start_link(name: Any, policy: [lanes: [{"any", "dynamic"}]])
      iex> Tollgate.check(Any, "agent-7", "any", limit: limit)
      {:allow, 4}
      iex> Tollgate.check(Any, "agent-7", "any", limit: "10/second")
      {:deny, 19_100}
  """
  @spec call_limit!(String.t()) :: call_limit
  defdelegate call_limit!(text), to: Native, as: :call_limit

  @doc """
  Answers many requests as if they were checked one by one, all at the same instant.

  It is faster than single checks when there are many agents. If one of the requests is invalid, it raises and charges
  nothing. Lists of more than #{@batch} requests are worked through in chunks, so that other processes get their turn.

      iex> heavy = {:ws, :heavy}
      iex> Tollgate.check_many(Tollgate, [{"agent-7", heavy}, {"agent-8", heavy, cost: 10}, {"agent-8", heavy}])
      [{:allow, 9}, {:warn, 0}, {:deny, 6000}]
  """
  @spec check_many(instance, [request], at: non_neg_integer, counted: boolean) :: [verdict]
  def check_many(instance, requests, options \\ []) do
    {reference, reporter, _, _} = entry = Instance.entry(instance)
    answers = check_chunks(reference, chunks(requests), options)

    if reporter || options != [] do
      Enum.zip_with(requests, answers, &Verdict.report(&2, entry, instance, elem(&1, 0), elem(&1, 1)))
    else
      answers
    end
  end

  defp check_chunks(reference, [chunk], options), do: Native.check_many(reference, chunk, options)

  defp check_chunks(reference, chunks, options) do
    Enum.each(chunks, &Native.validate(reference, &1))
    options = Keyword.put_new_lazy(options, :at, fn -> Native.now(reference) end)
    Enum.flat_map(chunks, &Native.check_many(reference, &1, options))
  end

  @doc false
  def chunks(list) when is_list(list) and length(list) > @batch, do: Enum.chunk_every(list, @batch)
  def chunks(list), do: [list]

  @doc """
  May all of this be done now? Charges every part, or none: several lanes of an agent, or a user, a team and an
  organisation; up to 16 parts.

  A lone caller is denied only if a part stands in the way. When callers cross, each may meet a charge that the other
  is about to take back, and both may be denied once. With `counted: true` a denial counts against each agent that
  stands in the way.

      iex> parts = [{"agent-7", {:ws, :light}}, {"team-1", {:http, :heavy}, cost: 8}]
      iex> Tollgate.check_all(Tollgate, parts)
      {:allow, [{:allow, 119}, {:allow, 2}]}
      iex> Tollgate.check_all(Tollgate, parts)
      {:deny, 36000, [{"team-1", {:http, :heavy}, [cost: 8]}]}
      iex> Tollgate.peek(Tollgate, "agent-7", {:ws, :light}).remaining
      119
  """
  @spec check_all(instance, [request], at: non_neg_integer, counted: boolean) :: all_verdict
  def check_all(instance, parts, options \\ []) do
    {reference, reporter, _, _} = entry = Instance.entry(instance)

    case Native.check_all(reference, parts, options) do
      {:deny, wait, _wait_ns, blocking, verdicts} ->
        blocking = for index <- blocking, do: {Enum.at(parts, index), Enum.at(verdicts, index)}
        Verdict.report_all_denied(blocking, wait, entry, instance)
        {:deny, wait, Enum.map(blocking, &elem(&1, 0))}

      {decision, _wait, _wait_ns, [], verdicts} ->
        if reporter,
          do: Enum.zip_with(parts, verdicts, &Verdict.report(&2, entry, instance, elem(&1, 0), elem(&1, 1)))

        {if(decision == :warn, do: :warn, else: :allow), verdicts}

      error ->
        error
    end
  end

  @doc """
  Checks as `check/4` does, and answers with all there is to know: for responses with headers, say.

  `source` is `nil`, unless machines share the lane (see `Tollgate.Redis`): then it says where the answer came from.
  `:credit` and `:advance` are the machine's own tokens, `:view` is what the store last said. `:pending` is a denial
  only until the store has answered: the same request may pass after `retry_after_ms`, and it is no violation.
  `:share`, `:closed`, `:open` and `:alone` are answers while the store is lost.

      iex> verdict = Tollgate.verdict(Tollgate, "agent-7", {:http, :heavy}, cost: 4)
      iex> {verdict.decision, verdict.remaining, verdict.capacity, verdict.full_in_ms, verdict.source}
      {:allow, 6, 10, 24000, nil}
  """
  @spec verdict(instance, agent, lane, options) :: map | {:error, refusal}
  def verdict(instance, agent, lane, options \\ []), do: Verdict.ask(instance, agent, lane, options)

  @doc """
  Looks at a lane of an agent without charging it. An agent that is not known does not become so.

      iex> Tollgate.check(Tollgate, "agent-7", {:ws, :heavy})
      iex> Tollgate.peek(Tollgate, "agent-7", {:ws, :heavy})
      %{remaining: 9, capacity: 10, next_in_ms: 6000, full_in_ms: 6000}
  """
  @spec peek(instance, agent, lane, options) :: state
  def peek(instance, agent, lane, options \\ []) do
    {reference, _} = Instance.find(instance)
    Verdict.state(Native.peek(reference, agent, lane, options))
  end

  @doc """
  Gives tokens back, never beyond full, and returns the state of the lane.

      iex> Tollgate.check(Tollgate, "agent-7", {:http, :heavy}, cost: 8)
      iex> Tollgate.refund(Tollgate, "agent-7", {:http, :heavy}, cost: 5)
      %{remaining: 7, capacity: 10, next_in_ms: 6000, full_in_ms: 18000}
  """
  @spec refund(instance, agent, lane, options) :: state | {:error, :cost_above_capacity}
  def refund(instance, agent, lane, options \\ []) do
    {reference, _} = Instance.find(instance)
    Verdict.state(Native.refund(reference, agent, lane, options))
  end

  @doc """
  Holds a slot of a lane whose limit is `"held 3"` or the like, for the calling process: when the process ends, however
  it ends, the slot is released.

  `owner:` is another process of this node that the slot belongs to, for code that accepts connections on behalf of
  others; or `nil`, and then the slot is held until `release/4` gives it back.

  Time gives nothing back, so a denial has no wait: somebody has to release a slot. An agent that holds one keeps its
  record.

      iex> Tollgate.start_link(name: Held, policy: [lanes: [{"ws/connections", "held 1"}]])
      iex> Task.await(Task.async(fn -> Tollgate.hold(Held, "agent-7", {:ws, :connections}) end))
      {:warn, 0}
      iex> Tollgate.hold(Held, "agent-7", {:ws, :connections})
      {:warn, 0}
      iex> Tollgate.hold(Held, "agent-7", {:ws, :connections})
      {:deny, :infinity}
      iex> Tollgate.release(Held, "agent-7", {:ws, :connections}).remaining
      1
  """
  @spec hold(instance, agent, lane, [{:owner, pid | nil} | {atom, term}]) :: verdict
  def hold(instance, agent, lane, options \\ []) do
    case owner(options) do
      {nil, options} ->
        ask(&Native.hold/4, instance, agent, lane, options)

      {owner, options} ->
        ask(&Holds.hold(instance, owner, &1, &2, &3, &4), instance, agent, Policy.lane(lane), options)
    end
  end

  @doc """
  Releases a slot, once for each that is held, and returns the state of the lane. It is one that the `owner:` holds, by
  default the calling process, with all of its cost; or with `owner: nil` one that belongs to no process.

      iex> Tollgate.start_link(name: Released, policy: [lanes: [{"ws/connections", "held 2"}]])
      iex> Tollgate.hold(Released, "agent-7", {:ws, :connections}, owner: nil)
      {:allow, 1}
      iex> Tollgate.release(Released, "agent-7", {:ws, :connections})
      {:error, :not_held}
      iex> Tollgate.release(Released, "agent-7", {:ws, :connections}, owner: nil).remaining
      2
  """
  @spec release(instance, agent, lane, [{:owner, pid | nil} | {atom, term}]) :: state | {:error, :not_held}
  def release(instance, agent, lane, options \\ []) do
    {reference, _} = Instance.find(instance)

    case owner(options) do
      {nil, options} -> Verdict.state(Native.release(reference, agent, lane, options))
      {owner, []} -> Verdict.state(Holds.release(instance, owner, agent, Policy.lane(lane)))
      {_, other} -> raise ArgumentError, "the slot of an owner takes no further options, got: #{inspect(other)}"
    end
  end

  # A process of another node that ends looks like one that lost its connection.
  defp owner(options) do
    unless Keyword.keyword?(options), do: raise(ArgumentError, "options are a keyword list, got: #{inspect(options)}")

    case Keyword.pop(options, :owner, self()) do
      {nil, options} -> {nil, options}
      {pid, options} when is_pid(pid) and node(pid) == node() -> {pid, options}
      {other, _} -> raise ArgumentError, "owner: is a process of this node, or nil, got: #{inspect(other)}"
    end
  end

  @doc """
  Charges an estimate, its `cost:`, now; `settle/4` settles it when the real cost is known. For calls to language
  models, say.

  If it is not settled within `ttl_ms`, the whole estimate stays charged: disconnecting is not free. It works on
  buckets, windows and budgets.

      iex> Tollgate.start_link(name: Reserved, clock: :manual, policy: [lanes: [{"llm/tokens", "budget 10_000/day"}]])
      iex> {:allow, 6_000, reservation} = Tollgate.reserve(Reserved, "user:42", {:llm, :tokens}, 60_000, cost: 4_000)
      iex> Tollgate.settle(Reserved, reservation, 500, so_far: true)
      {:ok, %{unused: 0, overspent: 0, left: 3500}}
      iex> Tollgate.settle(Reserved, reservation, 700)
      {:ok, %{unused: 2800, overspent: 0, left: 0}}
      iex> Tollgate.peek(Reserved, "user:42", {:llm, :tokens}).remaining
      8800
      iex> Tollgate.settle(Reserved, reservation, 700)
      {:error, :unknown_reservation}
  """
  @spec reserve(instance, agent, lane, ttl_ms :: pos_integer, options) ::
          {:allow | :warn, non_neg_integer, reservation}
          | {:allow, :exempt, reservation}
          | {:deny, pos_integer | :infinity}
          | {:error, refusal | :reservations_full | :too_many_reservations}
  def reserve(instance, agent, lane, ttl_ms, options \\ []) do
    {reference, _, _, _} = entry = Instance.entry(instance)

    with {verdict, reservation} when is_map(verdict) <-
           Native.reserve(reference, agent, lane, nanoseconds(ttl_ms), options) do
      case verdict |> Verdict.counted() |> Verdict.report(entry, instance, agent, lane) do
        {decision, detail} when reservation != nil -> {decision, detail, reservation}
        denied -> denied
      end
    end
  end

  @doc """
  Settles a reservation: `used` is its real cost, beyond what was reported `so_far`. The rest is given back; what
  exceeds the reservation is charged, into debt if need be, and returned as `overspent`. With 0 used, all of it is
  given back.

  `so_far: true` reports use and keeps the rest reserved: for answers that stream.

  A bucket does not get back what time has paid back since the reservation: others may have spent it. What a reset has
  forgiven is not given back either.

  More than a hundred times the lane's capacity beyond what was reserved is `:used_too_large`: most likely a mistake of
  units. `:full` means that something is overspent and there is no record to charge it to: settle again later. After
  either of them nothing has changed.
  """
  @spec settle(instance, reservation, used :: non_neg_integer, so_far: boolean, at: non_neg_integer) ::
          {:ok, settlement} | {:error, :unknown_reservation | :used_too_large | :full | :busy}
  def settle(instance, reservation, used, options \\ []) do
    {reference, _} = Instance.find(instance)

    with {unused, overspent, left} <- Native.settle(reference, reservation, used, options) do
      {:ok, %{unused: unused, overspent: overspent, left: left}}
    end
  end

  @doc "Extends a reservation to `ttl_ms` from now, if that is later than its present end."
  @spec extend(instance, reservation, ttl_ms :: pos_integer, at: non_neg_integer) ::
          :ok | {:error, :unknown_reservation | :busy}
  def extend(instance, reservation, ttl_ms, options \\ []) do
    {reference, _} = Instance.find(instance)
    Native.extend(reference, reservation, nanoseconds(ttl_ms), options)
  end

  # Longer than any clock runs, and still a number of nanoseconds.
  @ttl_ms_max 1_000_000_000_000

  defp nanoseconds(ttl_ms) when is_integer(ttl_ms) and ttl_ms in 1..@ttl_ms_max, do: ttl_ms * 1_000_000

  defp nanoseconds(other) do
    raise ArgumentError,
          "the time to live is a whole number of milliseconds from 1 to #{@ttl_ms_max}, got: #{inspect(other)}"
  end

  @doc """
  Fills all lanes of the agent, or the one that `lane:` names. What is reserved of a lane has nothing to give back any
  more. Slots that are held stay held.

      iex> Tollgate.check(Tollgate, "agent-7", {:ws, :light}, cost: 100)
      iex> Tollgate.reset(Tollgate, "agent-7", lane: {:ws, :heavy})
      iex> Tollgate.peek(Tollgate, "agent-7", {:ws, :light}).remaining
      20
      iex> Tollgate.reset(Tollgate, "agent-7")
      iex> Tollgate.peek(Tollgate, "agent-7", {:ws, :light}).remaining
      120
  """
  @spec reset(instance, agent, lane: lane, at: non_neg_integer) :: :ok | {:error, :busy}
  def reset(instance, agent, options \\ []) do
    {reference, _} = Instance.find(instance)

    with :ok <- Native.reset(reference, agent, options) do
      Events.send(instance, :change, %{what: :reset, agent: agent})
    end
  end

  @doc """
  Forgets the agent, closes its reservations, and returns whether anything was known of it. Slots that are held stay
  held: an agent that holds one keeps its record, with all other lanes full.

      iex> Tollgate.check(Tollgate, "agent-7", {:ws, :light})
      iex> {Tollgate.forget(Tollgate, "agent-7"), Tollgate.forget(Tollgate, "agent-7")}
      {true, false}
  """
  @spec forget(instance, agent, at: non_neg_integer) :: boolean | {:error, :busy}
  def forget(instance, agent, options \\ []) do
    {reference, _} = Instance.find(instance)
    Native.forget(reference, agent, options)
  end

  @doc """
  Gives up the records of agents that have been idle for this long, and returns how many. Every instance does it by
  itself now and then.
  """
  @spec sweep(instance, non_neg_integer) :: non_neg_integer
  def sweep(instance, idle_for_ms) do
    {reference, _} = Instance.find(instance)
    Native.sweep(reference, span(idle_for_ms))
  end

  @doc "The instant on the instance's clock, in nanoseconds: for the option `at:`."
  @spec now(instance) :: non_neg_integer
  def now(instance) do
    {reference, _} = Instance.find(instance)
    Native.now(reference)
  end

  @doc """
  Moves the clock of an instance that was started with `clock: :manual`. For tests: nothing has to sleep.

      iex> Tollgate.start_link(name: Later, clock: :manual)
      iex> Tollgate.check(Later, "agent-7", {:ws, :heavy}, cost: 10)
      iex> Tollgate.check(Later, "agent-7", {:ws, :heavy})
      {:deny, 6000}
      iex> Tollgate.advance_clock(Later, 6_000)
      iex> Tollgate.check(Later, "agent-7", {:ws, :heavy})
      {:warn, 0}
  """
  @spec advance_clock(instance, non_neg_integer) :: :ok
  def advance_clock(instance, by_ms) do
    {reference, _} = Instance.find(instance)
    Native.advance_clock(reference, span(by_ms))
  end

  defp span(ms) when is_integer(ms) and ms in 0..@ttl_ms_max, do: ms * 1_000_000

  defp span(other) do
    raise ArgumentError,
          "a span is a whole number of milliseconds from 0 to #{@ttl_ms_max}, got: #{inspect(other)}"
  end
end
