#include "run/inputs.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/run_files.h"
#include "base/text.h"
#include "tasks/language/text_source.h"
#include "tasks/task_def.h"

namespace hearth::run {
namespace {

/// Max bytes of an input that is hashed in full; larger for text, which training reads in full anyway.
constexpr int64_t kFullBytes = int64_t{256} << 20;
constexpr int64_t kFullTextBytes = int64_t{4} << 30;
/// Max number of files of a larger input that are sampled, and of blocks per file.
constexpr int64_t kMaxFiles = 4096;
constexpr int64_t kMaxBlocks = 64;
constexpr int64_t kBlockBytes = 4096;
constexpr int64_t kHeadBytes = int64_t{64} << 10;

struct InputFile {
  fs::path path;
  std::string name;  ///< relative to the input's path
  int64_t num_bytes = 0;
};

/// Selects the files that belong to an input.
using Filter = bool (*)(const fs::path&);

bool is_any(const fs::path&) { return true; }

bool holds_weights(const fs::path& file) {
  const std::string ending = file.extension().string();
  return file.filename() == kModelConfig || ending == ".safetensors" || ending == ".bin" || ending == ".pt" ||
         ending == ".pth";
}

bool holds_language_model(const fs::path& file) {
  return file.filename() == kModelConfig || file.filename().string().starts_with("model");
}

bool is_run(const fs::path& folder) {
  std::error_code none;
  return fs::exists(folder / kLogFile, none);
}

/// Lists files by name, without hidden files and run folders. Weights of a language model are in the top
/// folder.
std::vector<InputFile> files_in(const fs::path& top, Filter counts) {
  std::vector<InputFile> files;
  std::error_code none;
  if (!fs::is_directory(top, none))
    return {{.path = top, .name = "", .num_bytes = static_cast<int64_t>(fs::file_size(top, none))}};
  const auto options = fs::directory_options::skip_permission_denied;
  for (fs::recursive_directory_iterator at(top, options, none), end; !none && at != end; at.increment(none)) {
    const fs::path& path = at->path();
    std::error_code unknown;
    const bool is_hidden = path.filename().native().starts_with('.');
    if (at->is_directory(unknown)) {
      if (is_hidden || is_run(path) || counts == holds_language_model) at.disable_recursion_pending();
      continue;
    }
    if (is_hidden || !at->is_regular_file(unknown) || !counts(path)) continue;
    const auto size = at->file_size(unknown);
    files.push_back({.path = path,
                     .name = path.lexically_relative(top).string(),
                     .num_bytes = unknown ? 0 : static_cast<int64_t>(size)});
  }
  std::ranges::sort(files, {}, &InputFile::name);
  return files;
}

/// Hashes a file's first bytes and blocks at even distances up to its end.
void add_samples(std::span<const std::byte> bytes, int64_t num_blocks, Hasher& hasher) {
  const int64_t size = std::ssize(bytes);
  hasher.update(bytes.first(static_cast<size_t>(std::min(size, kHeadBytes))));
  const int64_t last = std::max<int64_t>(0, size - kBlockBytes);
  for (int64_t i = 1; i <= num_blocks; ++i) {
    const auto at = static_cast<size_t>(last / num_blocks * i + last % num_blocks * i / num_blocks);
    hasher.update(bytes.subspan(at, std::min(bytes.size() - at, static_cast<size_t>(kBlockBytes))));
  }
}

InputState state_of(std::string key, const std::vector<InputFile>& files, int64_t full_bytes) {
  InputState state{.key = std::move(key), .num_files = std::ssize(files)};
  Hasher hasher;
  for (const InputFile& file : files) {
    state.num_bytes += file.num_bytes;
    const std::string line = fmt::format("{}\n{}\n", file.name, file.num_bytes);
    hasher.update(std::as_bytes(std::span(line)));
  }
  const bool in_full = state.num_bytes <= full_bytes && state.num_files <= kMaxFiles;
  const int64_t stride = in_full ? 1 : (state.num_files + kMaxFiles - 1) / kMaxFiles;
  const int64_t num_blocks =
      std::clamp<int64_t>(kMaxFiles / std::max<int64_t>(1, state.num_files), 1, kMaxBlocks);
  for (int64_t i = 0; i < state.num_files; i += stride) {
    try {
      const MappedFile mapped(files[static_cast<size_t>(i)].path);
      in_full ? hasher.update(mapped.bytes()) : add_samples(mapped.bytes(), num_blocks, hasher);
    } catch (const UserError&) {
      // An unreadable file is skipped here; the task that reads it reports the error.
    }
  }
  state.digest = hasher.digest();
  return state;
}

class Inputs {
 public:
  void add(std::string key, const fs::path& path, Filter counts = is_any, int64_t full_bytes = kFullBytes) {
    std::error_code none;
    if (path.empty() || !fs::exists(path, none)) return;
    std::vector<InputFile> files = files_in(path, counts);
    states_.push_back(state_of(std::move(key), files, full_bytes));
  }
  void add_tokenizer(const recipe::Model& model) {
    std::vector<InputFile> files;
    for (const fs::path& file : text::tokenizer_files(tasks::tokenizer_path(model))) {
      std::error_code none;
      // The run folder has a copy of the chat template with its tokenizer.
      if (file.filename() == "chat_template.jinja") continue;
      files.push_back({.path = file,
                       .name = file.filename().string(),
                       .num_bytes = static_cast<int64_t>(fs::file_size(file, none))});
    }
    if (!files.empty()) states_.push_back(state_of("model.tokenizer", files, kFullTextBytes));
  }
  std::vector<InputState> take() { return std::move(states_); }

 private:
  std::vector<InputState> states_;
};

std::string described(const InputState& state) {
  return fmt::format("{} file{} of {} bytes", state.num_files, state.num_files == 1 ? "" : "s",
                     state.num_bytes);
}

}  // namespace

std::vector<InputState> inputs_of(const recipe::Recipe& recipe) {
  Inputs inputs;
  const bool has_tokenizer = tasks::task_of(recipe).model_format == tasks::ModelFormat::transformers;
  const recipe::DataKind kind = recipe::data_kind(recipe.data.kind);
  const int64_t full_bytes = kind == recipe::DataKind::text ? kFullTextBytes : kFullBytes;
  if (kind != recipe::DataKind::shapes) inputs.add("data.path", recipe.data.path, is_any, full_bytes);
  inputs.add("data.val_path", recipe.data.val_path, is_any, full_bytes);
  inputs.add("data.classes", recipe.data.classes);
  inputs.add("data.template", recipe.data.template_);
  inputs.add("diffuse.prior", recipe.diffuse.prior);
  inputs.add("distill.from", recipe.distill.from,
             fs::is_directory(recipe.distill.from) ? holds_weights : is_any);
  if (has_tokenizer) inputs.add_tokenizer(recipe.model);
  // Without an adapter a checkpoint holds all weights.
  if (recipe.adapter.wanted()) {
    const bool starts_elsewhere = !recipe.init.empty();
    inputs.add(starts_elsewhere ? "init" : "model.path", starts_elsewhere ? recipe.init : recipe.model.path,
               has_tokenizer ? holds_language_model : holds_weights);
  }
  inputs.add("model.autoencoder", recipe.model.autoencoder, holds_weights);
  return inputs.take();
}

uint64_t weights_digest(const fs::path& model) {
  Inputs inputs;
  inputs.add("weights", model, holds_weights);
  return inputs.take().at(0).digest;
}

std::vector<std::string> changes_between(const std::vector<InputState>& before,
                                         const std::vector<InputState>& after) {
  std::vector<std::string> changes;
  for (const InputState& was : before) {
    const auto is = std::ranges::find(after, was.key, &InputState::key);
    if (is == after.end() || *is == was) continue;
    const bool same_size = is->num_files == was.num_files && is->num_bytes == was.num_bytes;
    changes.push_back(same_size ? fmt::format("{} ({}, contents changed)", was.key, described(was))
                                : fmt::format("{} ({}, now {})", was.key, described(was), described(*is)));
  }
  return changes;
}

}  // namespace hearth::run
