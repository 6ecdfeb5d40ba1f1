defmodule Tollgate.Application do
  @moduledoc false

  use Application

  @impl Application
  def start(_type, _arguments) do
    default = Application.get_env(:tollgate, :default, [])
    instance = if default, do: [{Tollgate, Keyword.put(default, :name, Tollgate)}], else: []
    Tollgate.Holds.make_table()

    Supervisor.start_link([Tollgate.Events, Tollgate.Holds | instance],
      strategy: :one_for_one,
      name: Tollgate.Supervisor
    )
  end
end
