#include "base/foreign.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace hearth {
namespace {

constexpr std::string_view kHub = "https://huggingface.co/";
constexpr std::string_view kNameCharacters =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
/// Extensions of local files. A path with one of them is not interpreted as a name on a model hub.
constexpr auto kLocal =
    std::to_array<std::string_view>({".json", ".jsonl", ".txt", ".csv", ".tsv", ".parquet", ".gz", ".zst",
                                     ".yaml", ".pt", ".bin", ".safetensors", ".gguf"});
constexpr auto kPickled = std::to_array<std::string_view>({".bin", ".pth", ".pt", ".ckpt"});

/// First bytes of a compressed file, its format, and the command that decompresses it.
struct Compression {
  std::string_view magic;
  const char* name;
  const char* command;
};
constexpr std::array<Compression, 5> kCompressions = {{{"\x1f\x8b", "gzip", "gunzip -k"},
                                                       {"\x28\xb5\x2f\xfd", "Zstandard", "unzstd"},
                                                       {"\xfd\x37zXZ", "xz", "unxz -k"},
                                                       {"BZh91AY&SY", "bzip2", "bunzip2 -k"},
                                                       {"PK\x03\x04", "a zip archive", "unzip"}}};

bool is_name(std::string_view text) {
  return !text.empty() && text[0] != '.' && text[0] != '-' &&
         text.find_first_not_of(kNameCharacters) == text.npos;
}

/// Returns "org/name" if the path could be the name of a repository on the Hugging Face hub, otherwise an
/// empty string.
std::string hub_name(const fs::path& path) {
  std::string text = path.string();
  std::error_code ignored;
  // If the parent folder exists, the path is more likely a misspelled local file than a hub repository.
  if (path.has_parent_path() && fs::is_directory(path.parent_path(), ignored)) return "";
  if (std::ranges::find(kLocal, path.extension().string()) != kLocal.end()) return "";
  if (text.starts_with(kHub)) text.erase(0, kHub.size());
  if (text.starts_with("datasets/")) text.erase(0, text.find('/') + 1);
  while (text.ends_with('/')) text.pop_back();
  const size_t slash = text.find('/');
  if (slash == text.npos || !is_name(text.substr(0, slash)) || !is_name(text.substr(slash + 1))) return "";
  return text;
}

bool is_pickled(const fs::path& file) {
  return std::ranges::find(kPickled, file.extension().string()) != kPickled.end();
}

/// Throws a UserError for a file that is a bare pickle, not a zip archive of pickles: the format of
/// torch.save before PyTorch 1.6.
[[noreturn]] void refuse_pickle(const fs::path& file) {
  user_error(
      "{0}: the file was written by torch.save before PyTorch 1.6, which is not supported; convert it: "
      "python3 -c \"import torch; torch.save(torch.load('{0}', map_location='cpu', weights_only=True), "
      "'{1}')\"",
      file.string(), fs::path(file).replace_extension(".new" + file.extension().string()).string());
}

/// Returns a pandas command that reads the file with pandas.`read` and writes it as JSONL.
std::string to_jsonl(const fs::path& path, std::string_view read) {
  return fmt::format(
      "python3 -c \"import pandas; pandas.{}('{}').to_json('{}', orient='records', lines=True)\"", read,
      path.string(), fs::path(path).replace_extension(".jsonl").string());
}

[[noreturn]] void refuse_data(const fs::path& path, std::string_view found, std::string_view command) {
  user_error("expected text or JSON records (.txt, .jsonl, .json), got {} in {}; convert it: {}", found,
             path.string(), command);
}

}  // namespace

std::string download_advice(const fs::path& path, std::string_view prefix) {
  const std::string name = hub_name(path);
  if (name.empty()) return "";
  return fmt::format("; if that is a name on the Hugging Face hub, write {}{}, which is downloaded", prefix,
                     name);
}

void refuse_unsupported_weights(std::span<const std::byte> bytes, std::string_view path) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  // A safetensors file begins with eight bytes of header length, which may look like a pickle, followed by
  // '{'.
  if (text.size() > 8 && text[8] == '{') return;
  const bool has_protocol = text.size() > 1 && text[0] == '\x80' && text[1] >= 2 && text[1] <= 5;
  if (has_protocol) refuse_pickle(path);
}

void refuse_unsupported_weights(const fs::path& folder) {
  std::vector<fs::path> files = list_folder(folder);
  std::ranges::sort(files);
  for (const fs::path& file : files) {
    const std::string name = file.filename().string();
    // training_args.bin is a pickle of the training arguments and contains no weights.
    if (name == "training_args.bin" || !fs::is_regular_file(file)) continue;
    if (is_pickled(file))
      user_error(
          "expected model.safetensors, pytorch_model.bin or their shards' index in {}, found {}; if this is "
          "a state dict with the names of transformers, rename it to pytorch_model.bin",
          folder.string(), name);
    if (file.extension() == ".gguf")
      user_error(
          "{} has no safetensors or pytorch_model.bin, but a GGUF file, which is a complete model: use {}",
          folder.string(), file.string());
  }
}

void refuse_binary_data(std::string_view contents, const fs::path& path) {
  if (contents.starts_with("PAR1") && contents.ends_with("PAR1"))
    refuse_data(path, "Parquet", to_jsonl(path, "read_parquet"));
  for (const Compression& compression : kCompressions) {
    if (!contents.starts_with(compression.magic)) continue;
    refuse_data(path, compression.name, fmt::format("{} {}", compression.command, path.string()));
  }
}

void refuse_unsupported_records(const fs::path& path) {
  std::error_code unknown;
  if (!fs::exists(path, unknown)) {
    const std::string advice = download_advice(path, "hf:datasets/");
    if (advice.empty())
      user_error("cannot open {}: there is no such file; try data=FILE.jsonl", path.string());
    user_error("the data file '{}' does not exist{}", path.string(), advice);
  }
  const std::string ending = path.extension().string();
  if (ending == ".csv") refuse_data(path, "CSV", to_jsonl(path, "read_csv"));
  if (ending == ".tsv") refuse_data(path, "TSV", to_jsonl(path, "read_table"));
  for (const fs::path& folder : {path, path / "data"}) {
    if (!fs::is_directory(folder, unknown)) continue;
    for (const fs::path& file : list_folder(folder))
      if (file.extension() == ".parquet") refuse_data(folder, "Parquet", to_jsonl(folder, "read_parquet"));
  }
  if (!fs::is_regular_file(path, unknown)) return;
  const MappedFile file(path);
  refuse_binary_data({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}, path);
}

}  // namespace hearth
