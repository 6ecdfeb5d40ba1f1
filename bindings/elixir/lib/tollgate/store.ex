defmodule Tollgate.Store do
  @moduledoc false
  # Assignments in a DETS file: `{agent, {plan, overrides, exempt}}`. Only the owner
  # of an instance writes it.

  @doc "Opens a file, and repairs it if it was not closed. Without a file it is `nil`."
  def open(_name, nil), do: {:ok, nil}

  def open(name, path) when is_binary(path) do
    with :ok <- File.mkdir_p(Path.dirname(path)),
         {:ok, table} <- :dets.open_file({Tollgate, name}, file: String.to_charlist(path), type: :set) do
      {:ok, table}
    else
      {:error, reason} -> {:error, "the store #{path} cannot be opened: #{inspect(reason)}"}
    end
  end

  def open(_name, other), do: {:error, "store has to be the path of a file, got: #{inspect(other)}"}

  @doc "All entries."
  def all(nil), do: []

  def all(table) do
    case :dets.foldl(&[&1 | &2], [], table) do
      {:error, reason} -> raise ArgumentError, "the store cannot be read: #{inspect(reason)}"
      entries -> entries
    end
  end

  @doc "Writes assignments, and returns when they are on the disk."
  def put(nil, _entries), do: :ok

  def put(table, entries) do
    {empty, decided} = Enum.split_with(entries, fn {_agent, assignment} -> assignment == {nil, [], false} end)

    with :ok <- :dets.insert(table, decided),
         :ok <- Enum.reduce_while(empty, :ok, &delete(table, &1, &2)) do
      :dets.sync(table)
    end
  rescue
    # The table is not open: it was closed behind our back.
    ArgumentError -> {:error, :not_open}
  end

  defp delete(table, {agent, _}, :ok) do
    case :dets.delete(table, agent) do
      :ok -> {:cont, :ok}
      error -> {:halt, error}
    end
  end

  def close(nil), do: :ok
  def close(table), do: :dets.close(table)
end
