defmodule Tollgate.RustlerExample do
  @moduledoc "The functions of the NIF made with Rustler, src/lib.rs; `Tollgate.Build.rustler/0` of mix.exs builds it."

  @on_load :load

  @doc false
  def load, do: :erlang.load_nif(:filename.join(:code.priv_dir(:tollgate), ~c"tollgate_rustler"), 0)

  def new(_agents, _lanes), do: :erlang.nif_error(:not_loaded)
  def check(_reference, _agent, _channel, _tier), do: :erlang.nif_error(:not_loaded)
  def panic, do: :erlang.nif_error(:not_loaded)
end
