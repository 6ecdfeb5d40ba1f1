defmodule Tollgate.Package do
  @moduledoc """
  What is published. A package holds the files of one folder, and this project's Rust is not in its own, so `assemble/1`
  puts all of it into one first: `mix hex.build` runs there.
  """

  @here Path.expand("..", __DIR__)
  @repository Path.expand("../..", @here)

  @own ~w(lib c_src mix native mix.exs .formatter.exs README.md)
  # What the NIF is compiled from: the crates, the C headers, the presets that are built in.
  # The page of the server, which Tollgate.DashboardPlug serves.
  @rust ~w(Cargo.lock README.md build.rs src build include presets) ++
          ~w(bindings/redis/Cargo.toml bindings/redis/README.md bindings/redis/src) ++
          ~w(bindings/c/redis/Cargo.toml bindings/c/redis/build.rs bindings/c/redis/src) ++
          ~w(bindings/server/src/page/assets)
  @common ~w(CHANGELOG.md LICENSE-APACHE LICENSE-MIT)

  @doc "What mix.exs says of the package."
  def metadata do
    [
      name: "tollgate",
      licenses: ["MIT", "Apache-2.0"],
      links: %{},
      files: @own ++ @common ++ ["rust", "checksums.exs"]
    ]
  end

  @doc "Puts all that is published into a folder, as it will be in the package. Returns the files, relative to it."
  def assemble(directory) do
    File.rm_rf!(directory)
    for path <- @own, do: copy(@here, path, directory, path)
    for path <- @common, do: copy(@repository, path, directory, path)
    for path <- @rust, do: copy(@repository, path, directory, Path.join("rust", path))
    manifest = @repository |> Path.join("Cargo.toml") |> File.read!() |> alone()
    File.write!(Path.join(directory, "rust/Cargo.toml"), manifest)
    checksums = Path.join(@here, "checksums.exs")
    known = if File.exists?(checksums), do: File.read!(checksums), else: "%{from: nil, sha256: %{}}\n"
    File.write!(Path.join(directory, "checksums.exs"), known)
    files = directory |> Path.join("**") |> Path.wildcard(match_dot: true) |> Enum.reject(&File.dir?/1)
    Enum.map(files, &Path.relative_to(&1, directory))
  end

  # The workspace without the members that are not in the package, and without benches, whose files are not either.
  defp alone(manifest) do
    manifest
    |> String.replace(~r/^members = .*$/m, ~s(members = [".", "bindings/redis", "bindings/c/redis"]))
    |> String.replace(~r/^(?:#.*\n)*exclude = \["benches.*$/m, "")
    |> String.replace(~r/^(?:#.*\n)*default-members = .*$/m, "")
    |> String.replace(~r/^\[\[bench\]\]\n(?:[^\n\[][^\n]*\n)*/m, "")
  end

  defp copy(from, path, to, under) do
    from = Path.join(from, path)
    to = Path.join(to, under)

    if File.dir?(from) do
      for file <- from |> Path.join("**") |> Path.wildcard(), not File.dir?(file), not (file =~ ~r{/target/}) do
        copy_file(file, Path.join(to, Path.relative_to(file, from)))
      end
    else
      copy_file(from, to)
    end
  end

  defp copy_file(from, to) do
    File.mkdir_p!(Path.dirname(to))
    File.cp!(from, to)
  end
end
