defmodule Tollgate.MixProject do
  use Mix.Project

  def project do
    [
      app: :tollgate,
      version: "0.1.0",
      elixir: "~> 1.14",
      compilers: [:tollgate_nif | Mix.compilers()],
      elixirc_options: [warnings_as_errors: true],
      elixirc_paths: if(Mix.env() == :test, do: ["lib", "test/support"], else: ["lib"]),
      start_permanent: Mix.env() == :prod,
      deps: [],
      description: "An exact, lock-free rate limiter as a NIF",
      package: [licenses: ["MIT", "Apache-2.0"]]
    ]
  end

  def application do
    [extra_applications: [:crypto, :logger], mod: {Tollgate.Application, []}]
  end
end

defmodule Tollgate.Build do
  @moduledoc """
  Builds the native parts of the package, with cargo and the C compiler.

  It is defined here, since a task under `lib/` would not be compiled yet when the compilers run.
  """

  @here __DIR__
  @root Path.expand("../..", __DIR__)

  @doc """
  The package's NIF: the C shim over the limiter's C ABI.

  With the engine for limits that machines share, unless `config :tollgate, redis: false` leaves it out: the NIF is then
  smaller, and the limiter alone is quicker to build, with an older Rust.
  """
  def nif do
    case Application.get_env(:tollgate, :redis, true) do
      true -> shim("tollgate_nif.so", cargo("tollgate-redis-capi", ~w(--profile capi), []), ~w(-O2 -DTOLLGATE_REDIS))
      false -> shim("tollgate_nif.so", cargo("tollgate", ~w(--profile capi), []), ~w(-O2))
      other -> Mix.raise("config :tollgate, redis: has to be true or false, got: #{inspect(other)}")
    end
  end

  @doc "The same NIF with a way to make the limiter panic, for the tests."
  def nif_that_panics do
    archive = cargo("tollgate", [], ~w(--cfg tollgate_test_hooks))
    shim("tollgate_nif_that_panics.so", archive, ~w(-O1 -DTOLLGATE_TEST_HOOKS))
  end

  @doc "The example of a NIF made with Rustler."
  def rustler do
    manifest = Path.join(@here, "native/tollgate_nif/Cargo.toml")

    built =
      artifact(~w(build --release --locked --manifest-path) ++ [manifest], ~r{"([^"]*tollgate_nif\.(?:so|dylib))"})

    replace(priv("tollgate_rustler.so"), File.read!(built))
  end

  @doc "The folder for what was built."
  def priv(name), do: Path.join([Mix.Project.app_path(), "priv", name])

  # The features that the package offers: policies from TOML, budgets kept in a file, instances shared by several nodes.
  # The crate with the engine has them anyway.
  defp cargo(package, profile, flags) do
    features = if package == "tollgate", do: ~w(--features capi,config,persist,shared), else: []
    manifest = ["--manifest-path", Path.join(@root, "Cargo.toml")]
    arguments = ~w(rustc --lib --crate-type staticlib --package) ++ [package | features] ++ manifest ++ profile
    artifact(arguments, ~r{"([^"]*libtollgate(?:_redis_capi)?\.a)"}, flags)
  end

  # Cargo itself says where its output is: that depends on the environment.
  defp artifact(arguments, pattern, flags \\ []) do
    options = ["--message-format", "json-render-diagnostics", "--target-dir", target_directory()]
    # Flags of the environment are meant for other builds, and would compile everything anew.
    environment = [{"RUSTFLAGS", nil}, {"CARGO_ENCODED_RUSTFLAGS", nil}]
    output = run("cargo", arguments ++ options ++ ["--" | flags], cd: @root, env: environment)

    case Regex.scan(pattern, output, capture: :all_but_first) |> List.flatten() |> List.last() do
      nil -> Mix.raise("cargo did not say where it has put the file that #{inspect(pattern)} matches")
      path -> path
    end
  end

  # One for all environments, so that nothing is compiled twice, and apart from
  # the other targets, which are built with other flags.
  defp target_directory do
    Path.join(System.get_env("CARGO_TARGET_DIR") || Path.join(@root, "target"), "elixir") |> Path.expand(@root)
  end

  defp shim(name, archive, flags) do
    sources = Path.wildcard(Path.join(@here, "c_src/*.c"))
    headers = [Path.join(@here, "c_src/nif.h"), Path.join(@here, "mix.exs") | Path.wildcard("#{@root}/include/*.h")]
    made = priv(name)
    # Two archives may take each other's place, so the newer one is not always the other one.
    built_from = made <> ".from"
    same? = File.read(built_from) == {:ok, archive}

    if not same? or Mix.Utils.stale?([archive | sources ++ headers], [made]) do
      temporary = made <> ".new"
      File.mkdir_p!(Path.dirname(made))

      compile =
        ~w(-std=c11 -D_POSIX_C_SOURCE=200809L -fPIC -fvisibility=hidden -shared -Wall -Wextra -Werror) ++
          flags ++
          ["-I", erts_include(), "-I", Path.join(@root, "include"), "-o", temporary | sources] ++
          [archive | link_flags(:os.type())]

      run(System.get_env("CC") || "cc", compile, [])
      replace(made, File.read!(temporary))
      File.rm!(temporary)
      File.write!(built_from, archive)
      File.touch!(made)
    end

    :ok
  end

  # Never unloaded: a thread of ours may still be giving memory back after the
  # module was purged. Nothing of the limiter is exported to other libraries.
  defp link_flags({:unix, :darwin}), do: ~w(-undefined dynamic_lookup)

  defp link_flags(_),
    do: ~w(-Wl,-z,nodelete -Wl,--gc-sections -Wl,--exclude-libs,ALL -s -lgcc_s -lpthread -ldl -lm)

  defp erts_include do
    Path.join([:code.root_dir(), "erts-#{:erlang.system_info(:version)}", "include"])
  end

  # A library that is overwritten while a VM has it loaded takes that VM down.
  # So the new one takes the place of the old by a rename.
  defp replace(path, bytes) do
    if File.read(path) != {:ok, bytes} do
      File.mkdir_p!(Path.dirname(path))
      temporary = path <> ".written"
      File.write!(temporary, bytes)
      File.rename!(temporary, path)
    end

    :ok
  end

  defp run(program, arguments, options) do
    path = System.find_executable(program) || Mix.raise("#{program} is needed to build the NIF and is not in PATH")

    case System.cmd(path, arguments, options) do
      {output, 0} -> output
      {_output, status} -> Mix.raise("#{program} failed with status #{status}; its output is above")
    end
  end
end

defmodule Mix.Tasks.Compile.TollgateNif do
  @moduledoc "Builds the NIF before the modules that load it are compiled."

  use Mix.Task.Compiler

  @impl Mix.Task.Compiler
  def run(_arguments) do
    Tollgate.Build.nif()
    :ok
  end
end
