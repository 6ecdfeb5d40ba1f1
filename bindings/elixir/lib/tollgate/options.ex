defmodule Tollgate.Options do
  @moduledoc """
  What an instance is started with: `{Tollgate, name: MyApp.Limiter, policy: :hub}`.

    * `:name` - an atom. Default: `Tollgate`;
    * `:policy` - what is limited, and to what: see `Tollgate.Policy`. Default: `:hub`;
    * `:agents` - how many agents are active at the same time. Default: 100,000. Their memory is reserved when the
      instance starts, 87 bytes per agent for up to 6 lanes, and never exceeded;
    * `:prefault` - `true` to take all of that memory, and that of a `:roster`, from the system at the start, which
      fails if there is not enough. Otherwise pages are taken as agents arrive, and the first agent on a page may wait
      half a millisecond for it. The memory of `:budgets` is taken as it is used. Default: `false`;
    * `:on_full` - what happens to a newcomer when no record is free: `:evict` (the default) or `:deny`;
    * `:retry_after` - the unit of waits: `:milliseconds`, or `:whole_seconds` (and a minute where no wait helps), which
      the policy `:hub` defaults to;
    * `:clock` - `:automatic` (the default), `:os`, `:coarse`, `:boottime`, or `:manual` for tests: see
      `Tollgate.advance_clock/2`;
    * `:id_hash` - `:multilinear` (the default), or `:siphash13` if ids are chosen by clients that can watch the limiter
      closely;
    * `:shared` - the path of a file in memory (tmpfs), such as `"/run/tollgate/slab"`: all instances of this machine
      that name it are one limiter, in whatever VM or program they run. The first one makes it, the others join it: see
      "Several VMs" in `Tollgate`. Linux only. Default: none, an instance of this VM alone;
    * `:shared_mode` - who may use that file, as for `File.chmod/2`. Default: `0o600`, its owner alone;
    * `:redis` - where a Redis or Valkey is through which instances on many machines share limits: see `Tollgate.Redis`.
      Default: none;
    * `:store` - the path of a file, such as `"data/limits.json"`, that keeps plans, overrides and exemptions across
      restarts, and beside it the policy that `Tollgate.Control` put in force. They are in force before the first check.
      It is the file that the server and the other languages have, and one instance at a time may use it. Default: none;
    * `:budgets` - the path of a file that keeps used budgets across restarts. It is read before the first check, and
      written every `:save_budgets_every_ms` (5,000) and when the instance is stopped: if the VM is killed, charges
      since the last time are lost. Takes 272 more bytes per agent. Default: none;
    * `:always_exempt` - agents that are never limited, whatever is decided while it runs. A `:store` has them as exempt
      from then on. Default: `["dashboard"]` for
      the policy `:hub`, otherwise none;
    * `:observe` - `true` to count verdicts by lane and to find the worst offenders: see `Tollgate.Observe`. Costs a few
      nanoseconds per check, and 700 kB. Default: `false`;
    * `:roster` - with `observe: true`, the number of agents whose ids are remembered for `Tollgate.Observe.agents/2`;
      272 bytes each. Default: 0;
    * `:reservations` - how many may be open at once: see `Tollgate.reserve/5`; 64 bytes each. Default: 16,384;
    * `:reservations_per_agent` - how many of them one agent may have. Default: one in 64 of all, but at least 16;
    * `:log` - `true` to log denials, rate-limited: the first of an agent, then their number once a minute, and a
      summary every five minutes. Default: `false`;
    * `:pubsub` - the name of a `Phoenix.PubSub` through which events are broadcast: see `Tollgate.Events`. Default:
      none;
    * `:telemetry`, `:telemetry_prefix` - which events go to `:telemetry`: see `Tollgate.Telemetry`;
    * `:sweep_every_ms`, `:sweep_idle_ms` - the records of agents that have been idle for 10 minutes are given up
      every 5 minutes. `nil` for either never sweeps, which is fine: an idle agent gives way when its room is needed.
  """

  alias Tollgate.Redis

  @defaults [
    name: Tollgate,
    policy: :hub,
    agents: 100_000,
    on_full: :evict,
    id_hash: :multilinear,
    clock: :automatic,
    retry_after: nil,
    shared: nil,
    shared_mode: nil,
    redis: nil,
    store: nil,
    always_exempt: nil,
    observe: false,
    roster: 0,
    reservations: 16_384,
    reservations_per_agent: 0,
    prefault: false,
    budgets: nil,
    save_budgets_every_ms: 5_000,
    log: false,
    pubsub: nil,
    telemetry: nil,
    telemetry_prefix: [:tollgate],
    sweep_every_ms: 300_000,
    sweep_idle_ms: 600_000
  ]

  # Those that the NIF itself takes, and checks.
  @native [:agents, :on_full, :id_hash, :clock, :observe, :roster, :reservations, :reservations_per_agent, :prefault] ++
            [:shared]

  @doc false
  # The name of the instance, whatever else is wrong with the options.
  def name(options) when is_list(options), do: Keyword.get(options, :name, Tollgate)
  def name(_), do: Tollgate

  @doc false
  def native(options) do
    options
    |> Map.take(@native)
    |> Map.put(:whole_seconds, options.retry_after == :whole_seconds)
    |> Map.put(:shared_mode, options.shared_mode || 0)
    |> Map.put(:redis, Redis.native(options.redis))
  end

  @doc false
  # All options as a map, with their defaults.
  def check(options) do
    unless Keyword.keyword?(options) do
      raise ArgumentError, "an instance is started with a keyword list of options, got: #{inspect(options)}"
    end

    known = Keyword.keys(@defaults)

    case Keyword.keys(options) -- known do
      [] -> :ok
      unknown -> raise ArgumentError, "unknown options #{inspect(unknown)}; known are #{inspect(known)}"
    end

    options = Map.new(Keyword.merge(@defaults, options))
    Enum.each(options, &check_one/1)
    if options.shared && options.redis, do: wrong(:redis, "nil with shared:: an instance is shared in one way", "both")
    if options.shared_mode && !options.shared, do: wrong(:shared_mode, "nil without shared:", options.shared_mode)

    %{
      options
      | retry_after: options.retry_after || if(options.policy == :hub, do: :whole_seconds, else: :milliseconds),
        always_exempt: options.always_exempt || if(options.policy == :hub, do: ["dashboard"], else: []),
        telemetry: options.telemetry || if(options.policy == :hub, do: :all, else: :notable)
    }
  end

  defp check_one({:name, name}), do: (is_atom(name) and name not in [nil, true, false]) or wrong(:name, "an atom", name)

  defp check_one({key, value}) when key in [:sweep_every_ms, :sweep_idle_ms, :save_budgets_every_ms] do
    value == nil or (is_integer(value) and value > 0) or wrong(key, "a positive whole number, or nil", value)
  end

  defp check_one({:budgets, path}), do: is_nil(path) or is_binary(path) or wrong(:budgets, "a path, or nil", path)

  defp check_one({:shared, path}), do: is_nil(path) or is_binary(path) or wrong(:shared, "a path, or nil", path)

  defp check_one({:shared_mode, mode}),
    do: is_nil(mode) or mode in 1..0o777 or wrong(:shared_mode, "a mode such as 0o660, or nil", mode)

  defp check_one({key, value}) when key in [:observe, :log] do
    is_boolean(value) or wrong(key, "true or false", value)
  end

  defp check_one({:retry_after, chosen}) do
    chosen in [nil, :whole_seconds, :milliseconds] or wrong(:retry_after, ":whole_seconds or :milliseconds", chosen)
  end

  defp check_one({:always_exempt, agents}) do
    is_nil(agents) or (is_list(agents) and Enum.all?(agents, &is_binary/1)) or
      wrong(:always_exempt, "a list of agents", agents)
  end

  defp check_one({:store, path}), do: Tollgate.Store.check(path)

  defp check_one({:pubsub, pubsub}) do
    if pubsub != nil and not Code.ensure_loaded?(Phoenix.PubSub) do
      wrong(:pubsub, "nil without the package phoenix_pubsub in the application's dependencies", pubsub)
    end

    Tollgate.Events.pubsub(pubsub)
  end

  defp check_one({:telemetry, which}) do
    which in [nil, :all, :notable, :off] or wrong(:telemetry, ":all, :notable or :off", which)
  end

  defp check_one({:telemetry_prefix, prefix}) do
    (is_list(prefix) and Enum.all?(prefix, &is_atom/1)) or wrong(:telemetry_prefix, "a list of atoms", prefix)
  end

  # Tollgate.Policy checks the policy, and the NIF the rest.
  defp check_one(_), do: true

  defp wrong(key, wanted, got), do: raise(ArgumentError, "#{key} has to be #{wanted}, got: #{inspect(got)}")
end
