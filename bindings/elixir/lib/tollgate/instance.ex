defmodule Tollgate.Instance do
  @moduledoc false
  # The process that owns an instance. Checks do not go through it: they find
  # the limiter by the instance's name in `:persistent_term`, and call the NIF.
  #
  # The limiter outlives a crash of its owner: buckets stay as they are, checks
  # go on, and the restarted owner takes it over if its options are the same.
  # When the owner is stopped in order, the limiter goes with it.

  use GenServer

  alias Tollgate.{Native, Policy}

  @options [
    name: Tollgate,
    policy: :hub,
    agents: 100_000,
    on_full: :evict,
    id_hash: :multilinear,
    clock: :automatic,
    retry_after: nil,
    sweep_every_ms: 300_000,
    sweep_idle_ms: 600_000
  ]

  # What a check finds.
  @spec find(atom) :: {reference, nil}
  def find(name) do
    case :persistent_term.get({Tollgate, name}, nil) do
      {reference, reporter, _options} -> {reference, reporter}
      nil -> raise ArgumentError, not_started(name)
    end
  end

  def not_started(name) when is_atom(name) do
    "there is no instance #{inspect(name)}: start {Tollgate, name: #{inspect(name)}} under a supervisor first"
  end

  def not_started(name), do: "an instance is named by an atom, got: #{inspect(name)}"

  def child_spec(options) do
    %{id: {Tollgate, name_of(options)}, start: {__MODULE__, :start_link, [options]}}
  end

  def start_link(options) do
    options = check_options(options)
    GenServer.start_link(__MODULE__, options, name: options.name)
  end

  defp name_of(options) when is_list(options), do: Keyword.get(options, :name, Tollgate)
  defp name_of(_), do: Tollgate

  defp check_options(options) do
    unless Keyword.keyword?(options) do
      raise ArgumentError, "an instance is started with a keyword list of options, got: #{inspect(options)}"
    end

    case Keyword.keys(options) -- Keyword.keys(@options) do
      [] ->
        :ok

      unknown ->
        raise ArgumentError, "unknown options #{inspect(unknown)}; known are #{inspect(Keyword.keys(@options))}"
    end

    options = Map.new(Keyword.merge(@options, options))

    unless is_atom(options.name) and options.name not in [nil, true, false] do
      raise ArgumentError, "the name of an instance has to be an atom, got: #{inspect(options.name)}"
    end

    for key <- [:sweep_every_ms, :sweep_idle_ms], value = options[key], not (is_integer(value) and value > 0) do
      raise ArgumentError, "#{key} has to be a positive whole number, or nil, got: #{inspect(value)}"
    end

    %{options | retry_after: retry_after(options.retry_after, options.policy)}
  end

  # The hub tells waits in whole seconds.
  defp retry_after(nil, :hub), do: :whole_seconds
  defp retry_after(nil, _), do: :milliseconds
  defp retry_after(chosen, _) when chosen in [:whole_seconds, :milliseconds], do: chosen

  defp retry_after(other, _),
    do: raise(ArgumentError, "retry_after has to be :whole_seconds or :milliseconds, got: #{inspect(other)}")

  @impl GenServer
  def init(options) do
    # So that `terminate` runs when a supervisor stops the instance.
    Process.flag(:trap_exit, true)
    reference = take_over(options) || new(options)
    :persistent_term.put({Tollgate, options.name}, {reference, nil, options})
    {:ok, sweep_later(%{reference: reference, options: options})}
  rescue
    error in ArgumentError -> {:stop, error}
  end

  # What a crashed owner has left behind. A reference from before the NIF was
  # purged and loaded again is not one any more.
  defp take_over(options) do
    with {reference, _reporter, ^options} <- :persistent_term.get({Tollgate, options.name}, nil) do
      Native.now(reference)
      reference
    else
      _ -> nil
    end
  rescue
    ArgumentError -> nil
  end

  defp new(options) do
    reference =
      Native.new(Policy.lines(options.policy), %{
        agents: options.agents,
        on_full: options.on_full,
        id_hash: options.id_hash,
        clock: options.clock,
        whole_seconds: options.retry_after == :whole_seconds
      })

    :ok = Native.name_lanes(reference, for({name, _limit} <- Native.lanes(reference), do: Policy.pair(name)))
    reference
  end

  @impl GenServer
  def handle_info(:sweep, state) do
    Native.sweep(state.reference, state.options.sweep_idle_ms * 1_000_000)
    {:noreply, sweep_later(state)}
  end

  def handle_info(_, state), do: {:noreply, state}

  defp sweep_later(%{options: %{sweep_every_ms: every, sweep_idle_ms: idle}} = state) do
    if every && idle, do: Process.send_after(self(), :sweep, every)
    state
  end

  @impl GenServer
  def terminate(reason, state) do
    if reason in [:normal, :shutdown] or match?({:shutdown, _}, reason) do
      :persistent_term.erase({Tollgate, state.options.name})
    end
  end
end
