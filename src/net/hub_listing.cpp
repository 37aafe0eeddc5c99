#include "net/hub_listing.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"

namespace hearth::net {
namespace {

using Json = nlohmann::json;

/// Max size of a file. Its product with the max number of files (kMaxFiles in hub_client.cpp) fits in
/// int64_t.
constexpr int64_t kMaxFileBytes = int64_t{1} << 43;
/// Names of weights files (.safetensors and .bin) without their extension, in order of preference.
constexpr const char* kStems[] = {"model", "diffusion_pytorch_model", "adapter_model",
                                  "pytorch_lora_weights"};
constexpr const char* kPickledStems[] = {"pytorch_model", "diffusion_pytorch_model", "adapter_model"};

std::string text_in(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

int64_t size_in(const Json& object) {
  const auto found = object.find("size");
  if (found == object.end() || !found->is_number_integer()) return -1;
  if (found->is_number_unsigned() && found->get<uint64_t>() > static_cast<uint64_t>(kMaxFileBytes)) return -1;
  return found->get<int64_t>();
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == path.npos ? "" : path.substr(0, slash);
}
std::string name_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

bool ends_with_any(std::string_view name, std::initializer_list<std::string_view> endings) {
  return std::ranges::any_of(endings, [&](std::string_view ending) { return name.ends_with(ending); });
}

/// True for "STEM-00001-of-00003ENDING".
bool is_shard(std::string_view name, std::string_view stem, std::string_view ending) {
  if (!name.starts_with(stem) || !name.ends_with(ending) || name.size() < stem.size() + ending.size() + 6)
    return false;
  const std::string_view number = name.substr(stem.size(), name.size() - stem.size() - ending.size());
  return number.starts_with('-') && number.find("-of-") != number.npos &&
         number.find_first_not_of("0123456789-of") == number.npos;
}

/// Files of one folder, by name.
class Folder {
 public:
  explicit Folder(const std::vector<HubFile>& files, const std::string& folder) {
    for (const HubFile& file : files)
      if (folder_of(file.path) == folder) files_.push_back(&file);
  }
  bool has(std::string_view name) const {
    return std::ranges::any_of(files_, [&](const HubFile* file) { return name_of(file->path) == name; });
  }
  /// Appends the files whose name `accepts` returns true for, and returns their number.
  template <typename Accepts>
  size_t add(std::vector<HubFile>& needed, Accepts accepts) const {
    const size_t before = needed.size();
    for (const HubFile* file : files_)
      if (accepts(name_of(file->path))) needed.push_back(*file);
    return needed.size() - before;
  }

  /// Appends the weights of the first format that this folder has. Returns false if it has none.
  bool add_weights(std::vector<HubFile>& needed) const {
    for (const char* stem : kStems)
      if (add_format(needed, stem, ".safetensors")) return true;
    for (const char* stem : kPickledStems)
      if (add_format(needed, stem, ".bin")) return true;
    return false;
  }

 private:
  bool add_format(std::vector<HubFile>& needed, const std::string& stem, const std::string& ending) const {
    const std::string file = stem + ending, index = file + ".index.json";
    if (has(index)) {
      return add(needed,
                 [&](const std::string& name) { return name == index || is_shard(name, stem, ending); }) > 0;
    }
    return add(needed, [&](const std::string& name) { return name == file; }) > 0;
  }

  std::vector<const HubFile*> files_;
};

/// True if a file name is that of a configuration, tokenizer, chat template, license or model card, or of the
/// recipe or class list of a run of Hearth.
bool is_needed_metadata(const std::string& name) {
  if (name.starts_with('.') || name.ends_with(".index.json")) return false;
  static const std::set<std::string> unneeded = {"trainer_state.json", "all_results.json",
                                                 "train_results.json", "eval_results.json"};
  if (unneeded.contains(name)) return false;
  return ends_with_any(name, {".json", ".txt", ".jinja", ".model", ".spm"}) || name == "README.md" ||
         name == "config.yaml" || name == "classes.csv" || name.starts_with("LICENSE") ||
         name.starts_with("NOTICE");
}

std::string listed_files(const std::vector<HubFile>& files, std::string_view ending) {
  std::vector<std::string> names;
  for (const HubFile& file : files)
    if (file.path.ends_with(ending))
      names.push_back(fmt::format("{} ({})", file.path, human_bytes(file.num_bytes)));
  return listed(names, 12);
}

[[noreturn]] void refuse_weights(const HubName& name, const std::vector<HubFile>& files) {
  const auto has = [&](std::string_view ending) {
    return std::ranges::any_of(files, [&](const HubFile& file) { return file.path.ends_with(ending); });
  };
  for (const std::string_view ending : {".gguf", ".safetensors", ".bin", ".pth"}) {
    if (!has(ending)) continue;
    user_error(
        "{0} has no weights with a default name such as model.safetensors; name one of its files, as in "
        "{0}/FILE: {1}",
        name.text(), listed_files(files, ending));
  }
  user_error("{} has no weights (safetensors, .bin or GGUF); check the name", name.text());
}

std::vector<HubFile> needed_of_model(const HubName& name, const std::vector<HubFile>& files) {
  std::vector<HubFile> needed;
  const Folder top(files, "");
  top.add(needed, is_needed_metadata);
  if (!top.has("model_index.json")) {
    if (top.add_weights(needed)) return needed;
    const size_t num_other =
        top.add(needed, [](const std::string& file) { return file.ends_with(".safetensors"); });
    if (num_other == 1) return needed;
    refuse_weights(name, files);
  }
  // The components of a pipeline are the folders with a configuration. Weights at the top level are not
  // needed: they contain the same components in a single file.
  std::set<std::string> folders;
  for (const HubFile& file : files)
    if (file.path.find('/') == file.path.rfind('/')) folders.insert(folder_of(file.path));
  folders.erase("");
  for (const std::string& folder : folders) {
    const Folder component(files, folder);
    const bool is_component = component.add(needed, is_needed_metadata) > 0;
    if (is_component) component.add_weights(needed);
  }
  return needed;
}

}  // namespace

std::vector<HubFile> parse_hub_listing(std::string_view json, std::string_view where) {
  std::string fault;
  const std::optional<Json> page = parse_json<Json>(json, &fault);
  if (!page || !page->is_array())
    user_error("{}: the list of files is invalid: {}; check HF_ENDPOINT", where,
               page ? "expected an array" : fault);
  std::vector<HubFile> files;
  for (const Json& entry : *page) {
    if (!entry.is_object())
      user_error("{}: the list of files is invalid: expected an object for each file; check HF_ENDPOINT",
                 where);
    if (text_in(entry, "type") != "file") continue;
    const auto lfs = entry.find("lfs");
    const bool is_large = lfs != entry.end() && lfs->is_object();
    HubFile file{.path = text_in(entry, "path"),
                 .num_bytes = size_in(is_large ? *lfs : entry),
                 .hash = text_in(is_large ? *lfs : entry, "oid")};
    if (!is_safe_path(file.path))
      user_error("{}: the path '{}' is not allowed", where, printable(file.path, false));
    if (file.num_bytes < 0 || file.num_bytes > kMaxFileBytes)
      user_error("{}: the size of {} is invalid", where, printable(file.path, false));
    if (is_large ? !is_sha256(file.hash) : !is_git_hash(file.hash))
      user_error("{}: the hash of {} is invalid", where, printable(file.path, false));
    files.push_back(std::move(file));
  }
  return files;
}

void refuse_parquet(const HubName& name, const std::string& path) {
  if (name.is_dataset && path.ends_with(".parquet"))
    user_error("{}/{} is Parquet, which Hearth does not read; name a JSONL, JSON or text file of the dataset",
               name.repo, path);
}

std::vector<HubFile> needed_files(const HubName& name, const std::vector<HubFile>& files) {
  std::vector<HubFile> needed;
  if (!name.path.empty()) {
    std::ranges::copy_if(files, std::back_inserter(needed), [&](const HubFile& file) {
      return file.path == name.path || file.path.starts_with(name.path + "/");
    });
    if (needed.empty()) {
      std::vector<std::string> paths;
      for (const HubFile& file : files) paths.push_back(file.path);
      HubName repo = name;
      repo.path.clear();
      user_error("{} has no file '{}'{}; it has {}", repo.text(), name.path, did_you_mean(name.path, paths),
                 listed(paths, 12));
    }
  } else if (name.is_dataset) {
    std::ranges::copy_if(files, std::back_inserter(needed),
                         [](const HubFile& file) { return !name_of(file.path).starts_with('.'); });
    if (needed.empty()) user_error("{} has no files; check the name", name.text());
  } else {
    needed = needed_of_model(name, files);
  }
  for (const HubFile& file : needed) refuse_parquet(name, file.path);
  std::ranges::sort(needed, {}, &HubFile::path);
  return needed;
}

}  // namespace hearth::net
