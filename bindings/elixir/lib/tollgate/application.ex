defmodule Tollgate.Application do
  @moduledoc false

  use Application

  @impl Application
  def start(_type, _arguments) do
    # Loads the NIF, so that a node without one says so when it starts, and not with the first request.
    case Tollgate.Native.problem() do
      nil -> start()
      message -> {:error, message}
    end
  end

  defp start do
    default = Application.get_env(:tollgate, :default, [])
    instance = if default, do: [{Tollgate, Keyword.put(default, :name, Tollgate)}], else: []
    Tollgate.Holds.make_table()

    Supervisor.start_link([Tollgate.Events, Tollgate.Holds | instance],
      strategy: :one_for_one,
      name: Tollgate.Supervisor
    )
  end
end
