defmodule Tollgate.Precompiled do
  @moduledoc """
  A NIF that was compiled before.

  The package lists the libraries of its release with their SHA-256 in `checksums.exs`. If it has one for this machine,
  `mix compile` fetches it from where `TOLLGATE_PRECOMPILED` or `config :tollgate, precompiled:` says, a URL or a
  directory, or from where the release has put them, and refuses it unless the checksum agrees. `TOLLGATE_BUILD=1`
  compiles instead. A checkout of the repository has no checksums, and compiles.
  """

  @here Path.expand("..", __DIR__)
  @checksums Path.join(@here, "checksums.exs")

  @doc "The bytes of the library for this machine, or `:none` if it has to be compiled."
  def fetch do
    chosen = System.get_env("TOLLGATE_PRECOMPILED") || Application.get_env(:tollgate, :precompiled)

    if System.get_env("TOLLGATE_BUILD") == nil and File.exists?(@checksums) do
      %{from: from, sha256: checksums} = read_list(@checksums)
      fetch(chosen || from, checksums)
    else
      :none
    end
  end

  @doc "The same from this place, a URL or a directory, by this list of names and checksums."
  def fetch(from, checksums) do
    name = name()

    case checksums do
      %{^name => checksum} when from != nil -> {:ok, from |> read(name) |> verified(name, from, checksum)}
      _ -> :none
    end
  end

  @doc """
  What the library for this machine is called: by the package's version, the version of the NIF interface that it needs,
  and the machine.
  """
  def name do
    version = Keyword.fetch!(Mix.Project.config(), :version)
    # As far as the system tells it apart: x86_64-pc-linux-gnu, aarch64-apple-darwin23.4.0.
    [processor | rest] = :erlang.system_info(:system_architecture) |> to_string() |> String.split("-")

    system =
      case rest do
        ["apple", _] -> "apple-darwin"
        _ -> Enum.join(rest -- ["pc", "unknown"], "-")
      end

    "tollgate_nif-#{version}-nif-2.16-#{processor}-#{system}.so"
  end

  @doc "Compiles the library for this machine into a directory, and adds it to the list of checksums there."
  def make(directory), do: add(directory, name(), File.read!(Tollgate.Build.compiled()))

  @doc "Adds a library to a directory, and to the list of checksums there: `checksums.exs` of a release."
  def add(directory, name, bytes) do
    list = Path.join(directory, "checksums.exs")
    File.mkdir_p!(directory)
    File.write!(Path.join(directory, name), bytes)
    known = if File.exists?(list), do: read_list(list), else: %{from: nil, sha256: %{}}
    File.write!(list, inspect(put_in(known, [:sha256, name], sum(bytes)), limit: :infinity, pretty: true) <> "\n")
  end

  defp read_list(path), do: path |> Code.eval_file() |> elem(0)

  defp read("http" <> _ = url, name) do
    # Newer versions of Mix hide what a project does not declare; a build may ask for it.
    if function_exported?(Mix, :ensure_application!, 1), do: Enum.each([:inets, :ssl], &Mix.ensure_application!/1)
    for application <- [:inets, :ssl], do: {:ok, _} = Application.ensure_all_started(application)
    address = String.to_charlist("#{String.trim_trailing(url, "/")}/#{name}")
    match = [match_fun: :public_key.pkix_verify_hostname_match_fun(:https)]
    options = [verify: :verify_peer, cacerts: :public_key.cacerts_get(), depth: 4, customize_hostname_check: match]
    options = if String.starts_with?(url, "https:"), do: [ssl: options], else: []

    case :httpc.request(:get, {address, []}, options, body_format: :binary) do
      {:ok, {{_, 200, _}, _, bytes}} -> bytes
      {:ok, {{_, status, _}, _, _}} -> failed(address, "the answer was #{status}")
      {:error, reason} -> failed(address, inspect(reason))
    end
  end

  defp read(directory, name) do
    path = Path.join(directory, name)

    case File.read(path) do
      {:ok, bytes} -> bytes
      {:error, reason} -> failed(path, :file.format_error(reason))
    end
  end

  defp failed(where, why) do
    Mix.raise("the NIF #{where} cannot be fetched: #{why}. With TOLLGATE_BUILD=1 it is compiled here, by cargo and cc")
  end

  defp verified(bytes, name, from, checksum) do
    if sum(bytes) == checksum do
      bytes
    else
      Mix.raise("""
      the NIF #{name} from #{from} is not the one that was released: its SHA-256 is #{sum(bytes)}, and the package \
      says #{checksum}. It was not installed. With TOLLGATE_BUILD=1 it is compiled here, by cargo and cc\
      """)
    end
  end

  defp sum(bytes), do: :crypto.hash(:sha256, bytes) |> Base.encode16(case: :lower)
end
