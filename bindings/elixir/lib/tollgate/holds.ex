defmodule Tollgate.Holds do
  @moduledoc false
  # Slots that belong to processes: `Tollgate.hold/4`. One process for all
  # instances takes the slots, monitors their owners and releases them when
  # those end. It takes the slot itself, so that an owner cannot end between
  # taking one and being monitored.
  #
  # Its state is in tables of the application's, so that it survives: if it
  # crashes, its successor monitors the same owners, and learns at once of those
  # that have ended meanwhile.
  #
  # A hold is `{key, reference, options}`, with the key
  # `{instance, owner, agent, lane, monitor}`: in order, so that the holds of an
  # owner on a lane are found without a look at the others. The second table has
  # the key of each monitor.

  use GenServer

  alias Tollgate.Native

  @table __MODULE__
  @monitors Module.concat(__MODULE__, Monitors)

  # Called by the application itself, whose process then owns the tables.
  def make_table do
    :ets.new(@table, [:named_table, :public, :ordered_set])
    :ets.new(@monitors, [:named_table, :public, :set])
  end

  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)

  def hold(instance, owner, reference, agent, lane, options) do
    call({:hold, instance, owner, reference, agent, lane, options})
  end

  def release(instance, owner, agent, lane), do: call({:release, instance, owner, agent, lane})

  # An instance was stopped in order, and its limiter goes with it.
  def forget(instance), do: GenServer.cast(__MODULE__, {:forget, instance})

  defp call(request) do
    case GenServer.call(__MODULE__, request, :infinity) do
      {:raise, error} -> raise error
      answer -> answer
    end
  end

  @impl GenServer
  def init(nil) do
    :ets.delete_all_objects(@monitors)

    for {{instance, owner, agent, lane, _}, reference, options} = hold <- :ets.tab2list(@table) do
      :ets.delete(@table, elem(hold, 0))
      watch(instance, owner, agent, lane, reference, options)
    end

    {:ok, nil}
  end

  @impl GenServer
  def handle_call({:hold, instance, owner, reference, agent, lane, options}, _from, state) do
    answer = Native.hold(reference, agent, lane, options)

    case answer do
      # An exempt agent takes no slot, and has none to release.
      {:allow, :exempt} ->
        watch(instance, owner, agent, lane, reference, :exempt)

      {held, _} when held in [:allow, :warn] ->
        watch(instance, owner, agent, lane, reference, Keyword.take(options, [:cost, :plan]))

      _ ->
        :ok
    end

    {:reply, answer, state}
  rescue
    error in ArgumentError -> {:reply, {:raise, error}, state}
  end

  def handle_call({:release, instance, owner, agent, lane}, _from, state) do
    # A number comes before every reference.
    case :ets.next(@table, {instance, owner, agent, lane, 0}) do
      {^instance, ^owner, ^agent, ^lane, monitor} ->
        Process.demonitor(monitor, [:flush])
        {:reply, give_back(monitor), state}

      _ ->
        {:reply, {:error, :not_held}, state}
    end
  end

  @impl GenServer
  def handle_cast({:forget, instance}, state) do
    for [monitor] <- :ets.match(@table, {{instance, :_, :_, :_, :"$1"}, :_, :_}) do
      Process.demonitor(monitor, [:flush])
      take(monitor)
    end

    {:noreply, state}
  end

  @impl GenServer
  def handle_info({:DOWN, monitor, :process, _pid, _reason}, state) do
    give_back(monitor)
    {:noreply, state}
  end

  def handle_info(_, state), do: {:noreply, state}

  defp watch(instance, owner, agent, lane, reference, options) do
    monitor = Process.monitor(owner)
    key = {instance, owner, agent, lane, monitor}
    # If this process is killed in between, its successor finds the hold and makes a new monitor.
    :ets.insert(@table, {key, reference, options})
    :ets.insert(@monitors, {monitor, key})
  end

  defp take(monitor) do
    case :ets.take(@monitors, monitor) do
      [{_, key}] -> :ets.take(@table, key)
      [] -> []
    end
  end

  # Out of the table first: a slot that is released twice would be somebody else's.
  defp give_back(monitor) do
    case take(monitor) do
      [{_, _, :exempt}] -> :exempt
      [{{_, _, agent, lane, _}, reference, options}] -> Native.release(reference, agent, lane, options)
      [] -> {:error, :not_held}
    end
  rescue
    # The NIF was purged and loaded again since, and the limiter is gone.
    ArgumentError -> {:error, :not_held}
  end
end
