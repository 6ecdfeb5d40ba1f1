defmodule Tollgate.Instance do
  @moduledoc false
  # The process that owns an instance. Checks do not go through it: they find
  # the limiter by the instance's name in `:persistent_term`, and call the NIF.
  # The name alone is the key, since a tuple makes a check a sixth slower;
  # `init` makes sure that nobody else uses it.
  # Changes do go through it, so that the file of the store and the limiter
  # always agree.
  #
  # The limiter outlives a crash of its owner: buckets stay as they are, checks
  # go on, and the restarted owner takes it over if its options are the same.
  # When the owner is stopped in order, the limiter goes with it.

  use GenServer

  require Logger

  alias Tollgate.{Error, Events, Headers, Holds, JSON, Log, Native, Options, Policy, Redis, Store, Telemetry}

  @nothing {nil, [], false}

  @file_tries 250
  @file_wait_ms 20

  # What a check finds.
  @spec find(atom) :: {reference, tuple | nil}
  def find(name) do
    {reference, reporter, _options, _aux} = entry(name)
    {reference, reporter}
  end

  # All that is kept for an instance: `{reference, reporter, options, aux}`. `aux` has the lanes with what is prepared
  # for them, who wants its events, and whether denials are logged.
  @spec entry(atom) :: {reference, tuple | nil, map, map}
  def entry(name) do
    case :persistent_term.get(name, nil) do
      {_reference, _reporter, _options, _aux} = entry -> entry
      _ -> raise ArgumentError, not_started(name)
    end
  end

  # What the lanes have by the policy of the instance's options.
  def limits_of_options(name) do
    {_, _, options, _} = entry(name)
    fields = %{Options.native(Map.merge(options, %{redis: nil, shared: nil, shared_mode: nil})) | agents: 1, roster: 0}
    options.policy |> Policy.source() |> Native.new(%{fields | reservations: 1, observe: false}) |> Native.lanes()
  end

  def not_started(name) when is_atom(name) do
    "there is no instance #{inspect(name)}: start {Tollgate, name: #{inspect(name)}} under a supervisor first"
  end

  def not_started(name), do: "an instance is named by an atom, got: #{inspect(name)}"

  # Has the owner make a change; see `change`.
  def control(name, change) do
    find(name)

    case GenServer.call(name, {:control, change}, :infinity) do
      {:raise, error} -> raise error
      answer -> answer
    end
  end

  def child_spec(options) do
    %{id: {Tollgate, Options.name(options)}, start: {__MODULE__, :start_link, [Redis.hide(options)]}}
  end

  def start_link(options) do
    options = options |> Redis.hide() |> Options.check()
    GenServer.start_link(__MODULE__, options, name: options.name)
  end

  @impl GenServer
  def init(options) do
    # So that `terminate` runs when a supervisor stops the instance.
    Process.flag(:trap_exit, true)

    left_behind = take_over(options)
    reference = left_behind || new(options)
    # A limiter that was left behind has its files, and is ahead of that of the budgets.
    unless left_behind, do: Store.keep(reference, options)
    exempt_always(reference, options.always_exempt)
    if options.budgets && !left_behind, do: keep_budgets(reference, options.budgets, @file_tries)
    # Only now can it be found: assignments are in force before the first check.
    reporter = Telemetry.reporter(options.telemetry, options.telemetry_prefix)
    :persistent_term.put(options.name, {reference, reporter, options, aux(reference, options)})
    state = %{reference: reference, options: options, unsaved: nil, unread: nil}
    {:ok, state |> sweep_later() |> poll_later() |> save_later() |> reload_later()}
  rescue
    error in ArgumentError -> {:stop, error}
  end

  # The limiter of an instance that was stopped a moment ago gives its file up
  # when its memory is collected, so this may have to wait for it. It ends after
  # five seconds.
  defp keep_budgets(reference, path, tries) do
    case Native.keep_budgets_in(reference, path) do
      {:error, message} ->
        if tries == 0 or not (message =~ "is locked by"), do: raise(ArgumentError, message)
        Process.sleep(@file_wait_ms)
        keep_budgets(reference, path, tries - 1)

      {_loaded, _ended, unknown, full, _ahead} when unknown + full > 0 ->
        Logger.warning("#{unknown} used budgets are of lanes that the policy does not have, #{full} found no room")

      _ ->
        :ok
    end
  end

  # The limiter of a crashed owner. A reference from before the NIF was purged
  # and loaded again is not valid any more.
  defp take_over(%{name: name} = options) do
    case :persistent_term.get(name, nil) do
      {reference, _reporter, ^options, _aux} -> if living?(reference), do: reference
      {_reference, _reporter, %{name: ^name}, _aux} -> nil
      nil -> nil
      _ -> raise ArgumentError, "somebody else keeps a :persistent_term under #{inspect(name)}: choose another name"
    end
  end

  defp living?(reference) do
    is_integer(Native.now(reference))
  rescue
    ArgumentError -> false
  end

  defp new(options) do
    reference = Native.new(Policy.source(options.policy), Options.native(options))
    :ok = Native.name_lanes(reference, for({name, _limit} <- Native.lanes(reference), do: Policy.pair(name)))
    reference
  end

  # Those who subscribed to the events of a crashed owner stay subscribed.
  defp aux(reference, options) do
    events =
      case :persistent_term.get(options.name, nil) do
        {_, _, _, %{events: {wanted, _}}} -> {wanted, Events.pubsub(options.pubsub)}
        nil -> Events.new(Events.pubsub(options.pubsub))
      end

    lanes = for {name, _limit} <- Native.lanes(reference), do: prepared(name)
    %{lanes: List.to_tuple(lanes), events: events, log: options.log}
  end

  # What is the same in all answers about a lane, written once: the start of a warning, the end of a denial, and its
  # name in a header.
  defp prepared(name) do
    {channel, tier} = Policy.pair(name)
    text = JSON.encode(tier)
    warning = ~s({"type":"rate_limit_warning","tier":#{text},"remaining":)
    {channel, tier, %{warning: warning, denial: ~s(,"tier":#{text}}), name: name, quoted: Headers.string(name)}}
  end

  defp exempt_always(reference, agents) do
    always =
      for agent <- agents,
          {plan, overrides, exempt} = Native.assignment(reference, agent),
          not exempt,
          do: {agent, {plan, overrides, true}}

    with {:error, {_reason, message}} <- if(always == [], do: :ok, else: Native.set_assignments(reference, always)) do
      raise ArgumentError, "always_exempt: #{message}"
    end
  end

  @impl GenServer
  def handle_call({:control, change}, _from, state) do
    answer = change(change, state)
    if answer == :ok, do: Events.send(state.options.name, :change, changed(change))
    {:reply, answer, state}
  rescue
    error in ArgumentError -> {:reply, {:raise, error}, state}
  end

  defp changed({:agent, agent, what}), do: %{what: what, agent: agent}
  defp changed({:allowlist, agents}), do: %{what: {:allowlist, agents}}
  defp changed({:overrides, agent, limits}), do: %{what: {:overrides, limits}, agent: agent}
  defp changed({:assignment, agent, plan, limits}), do: %{what: {:assignment, plan, limits}, agent: agent}
  defp changed({:policy, _source, _kept}), do: %{what: :policy}
  defp changed({:defaults, limits}), do: %{what: {:defaults, limits}}

  # The limiter judges a change, and writes it to its file before it is in force.
  defp change({:agent, agent, change}, state) do
    refusal(with :ok <- allowed(change, agent, state), do: apply_change(state.reference, agent, change))
  end

  # Several of one agent, all or none.
  defp change({:overrides, agent, limits}, %{reference: reference} = state) do
    {plan, _, _} = Native.assignment(reference, agent)
    change({:assignment, agent, plan, limits}, state)
  end

  defp change({:assignment, agent, plan, limits}, %{reference: reference}) do
    {_, _, exempt} = Native.assignment(reference, agent)
    refusal(Native.set_assignments(reference, [{agent, {plan, by_lane(reference, limits), exempt}}]))
  catch
    {:error, _} = error -> refusal(error)
  end

  # Exactly these agents, and those that always are, become exempt.
  defp change({:allowlist, agents}, state) do
    wanted = MapSet.new(agents ++ state.options.always_exempt)
    decided = Map.new(Native.assignments(state.reference))
    known = for {agent, {_, _, true}} <- decided, do: agent

    later =
      for agent <- Enum.uniq(known ++ MapSet.to_list(wanted)),
          {plan, overrides, exempt} <- [Map.get(decided, agent, @nothing)],
          exempt != MapSet.member?(wanted, agent),
          do: {agent, {plan, overrides, not exempt}}

    refusal(Native.set_assignments(state.reference, later))
  end

  # The policy in force, and the one that is kept, are the same, or nothing has changed.
  defp change({:policy, source, kept}, %{reference: reference, options: options}) do
    before = Native.policy(reference)

    with :ok <- refusal(replace(reference, source)) do
      toml = if kept == :kept, do: Native.policy(reference)

      case Store.put_policy(options, toml) do
        :ok ->
          :ok

        {:error, message} ->
          :ok = Native.replace_policy(reference, {:toml, before})
          {:error, %Error{reason: :store, message: "the policy cannot be kept: #{message}"}}
      end
    end
  end

  defp change({:defaults, limits}, %{reference: reference} = state) do
    lines = Map.new(by_lane(reference, limits))
    change({:policy, {:toml, Policy.with_limits(Native.policy(reference), lines)}, :kept}, state)
  catch
    {:error, _} = error -> refusal(error)
  end

  defp replace(reference, source) do
    Native.replace_policy(reference, source)
  rescue
    # A text that is no policy is an operator's mistake.
    error in ArgumentError -> {:error, {:bad_policy, error.message}}
  end

  defp refusal(:ok), do: :ok
  defp refusal({:error, %Error{}} = error), do: error
  defp refusal({:error, {reason, message}}), do: {:error, %Error{reason: reason, message: message}}

  # Limits by lane, from limits by lane or by tier. A lane's own limit takes precedence over its tier's.
  defp by_lane(reference, limits) do
    names = for {name, _} <- Native.lanes(reference), do: name
    {lanes, tiers} = Enum.split_with(limits, fn {name, _} -> name in names end)

    of_tiers =
      for {tier, limit} <- tiers do
        case Enum.filter(names, &(&1 |> String.split("/") |> List.last() == tier)) do
          [] ->
            throw(
              {:error,
               {:unknown_lane, "there is no lane or tier #{inspect(tier)}; the lanes are #{Enum.join(names, ", ")}"}}
            )

          found ->
            for name <- found, do: {name, limit}
        end
      end

    of_tiers |> Enum.concat() |> Map.new() |> Map.merge(Map.new(lanes)) |> Map.to_list()
  end

  defp allowed({:exempt, false}, agent, state) do
    if agent in state.options.always_exempt do
      {:error, {:always_exempt, "#{inspect(agent)} is exempt as long as the instance lists it in always_exempt:"}}
    else
      :ok
    end
  end

  defp allowed(_change, _agent, _state), do: :ok

  defp apply_change(reference, agent, {:assign, plan}), do: Native.assign(reference, agent, plan)
  defp apply_change(reference, agent, {:override, lane, limit}), do: Native.set_override(reference, agent, lane, limit)
  defp apply_change(reference, agent, {:exempt, exempt}), do: Native.set_exempt(reference, agent, exempt)

  @impl GenServer
  def handle_info(:sweep, state) do
    Native.sweep(state.reference, state.options.sweep_idle_ms * 1_000_000)
    {:noreply, sweep_later(state)}
  end

  # What other VMs that share the limiter have decided goes to the file.
  def handle_info(:reload, %{reference: reference, unread: before} = state) do
    problem =
      case Native.reload_assignments(reference) do
        {:error, {reason, message}} when reason != :busy -> message
        _ -> nil
      end

    if problem && problem != before, do: Logger.error("the store #{state.options.store}: #{problem}")
    {:noreply, reload_later(%{state | unread: problem})}
  end

  def handle_info(:save_budgets, state), do: {:noreply, state |> save() |> save_later()}

  # Events of the limiter go to the subscribers, lines that are due to the log.
  def handle_info(:poll, %{reference: reference, options: options} = state) do
    if options.observe, do: Enum.each(Native.poll_events(reference), &pass_on(options.name, &1))
    if options.log, do: Log.due(reference)
    {:noreply, poll_later(state)}
  end

  def handle_info(_, state), do: {:noreply, state}

  # Abuse and changes were sent by the functions that caused them.
  defp pass_on(name, {:saturated, lossy_evictions, refused}),
    do: Events.send(name, :saturated, %{lossy_evictions: lossy_evictions, refused: refused})

  defp pass_on(name, {:unknown_action, channel, action}),
    do: Events.send(name, :unknown_action, %{channel: channel, action: action})

  defp pass_on(name, {:clock_fell_back}), do: Events.send(name, :clock_fell_back, %{})
  defp pass_on(_name, _event), do: :ok

  @poll_every_ms 1_000

  defp poll_later(%{options: %{observe: false, log: false}} = state), do: state

  defp poll_later(state) do
    Process.send_after(self(), :poll, @poll_every_ms)
    state
  end

  # A failure is logged when it begins, and not every few seconds.
  defp save(%{reference: reference, unsaved: before} = state) do
    case Native.save_budgets(reference) do
      {:error, message} ->
        if message != before, do: Logger.error("used budgets are not saved: #{message}")
        %{state | unsaved: message}

      {_saved, _unsaved} ->
        %{state | unsaved: nil}
    end
  end

  defp save_later(%{options: %{budgets: path, save_budgets_every_ms: every}} = state) do
    if path && every, do: Process.send_after(self(), :save_budgets, every)
    state
  end

  @reload_every_ms 2_000

  defp reload_later(%{options: %{store: path, shared: shared}} = state) do
    if path && shared, do: Process.send_after(self(), :reload, @reload_every_ms)
    state
  end

  defp sweep_later(%{options: %{sweep_every_ms: every, sweep_idle_ms: idle}} = state) do
    if every && idle, do: Process.send_after(self(), :sweep, every)
    state
  end

  @impl GenServer
  def terminate(reason, state) do
    if state.options.budgets, do: save(state)

    if reason in [:normal, :shutdown] or match?({:shutdown, _}, reason) do
      if state.options.redis, do: Native.stop_engine(state.reference)
      :persistent_term.erase(state.options.name)
      Holds.forget(state.options.name)
    end
  end
end
