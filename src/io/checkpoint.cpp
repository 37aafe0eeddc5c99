#include "io/checkpoint.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/run_files.h"

namespace hearth::io {
namespace {

using Json = nlohmann::json;

constexpr const char* kMemory = "memory.bin";
constexpr const char* kState = "state.json";
constexpr const char* kManifest = "manifest.json";
constexpr const char* kDamaged = "its manifest is damaged";
constexpr const char* kNoManifest = "it has no manifest: the write did not finish";

std::string step_name(int64_t step) { return fmt::format("step-{:09}", step); }

std::optional<int64_t> step_of(const fs::path& path) {
  const std::string name = path.filename().string();
  if (!name.starts_with("step-") || name.size() != 14) return std::nullopt;
  if (!std::all_of(name.begin() + 5, name.end(), [](char c) { return c >= '0' && c <= '9'; }))
    return std::nullopt;
  return std::stoll(name.substr(5));
}

/// Lists the checkpoint folders, complete or not, newest first.
std::vector<fs::path> step_folders(const fs::path& folder) {
  std::vector<fs::path> paths = list_folder(folder);
  std::erase_if(paths, [](const fs::path& path) { return !step_of(path); });
  std::sort(paths.rbegin(), paths.rend());
  return paths;
}

/// Deletes a checkpoint folder, its manifest first, so that a partly deleted folder does not look complete.
/// If the path is a link, deletes only the link.
void delete_folder(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_symlink(fs::symlink_status(path, ignored))) fs::remove(path / kManifest, ignored);
  fs::remove_all(path, ignored);
}

/// Deletes temporary folders that an interrupted write left.
void delete_temporary(const fs::path& folder) {
  std::error_code ignored;
  for (const fs::path& path : list_folder(folder)) {
    if (path.filename().string().starts_with(".tmp-step-")) fs::remove_all(path, ignored);
  }
}

/// Moves a finished folder to its final path. If a folder exists there, the two are exchanged atomically
/// (RENAME_EXCHANGE), so that the path has one of them at every moment; the old one is deleted after the
/// exchange is on disk.
void move_to_final_path(const fs::path& temporary, const fs::path& final_path) {
  const bool swapped =
      renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, final_path.c_str(), RENAME_EXCHANGE) == 0;
  if (swapped) {
    sync_folder(final_path.parent_path());
    fs::remove_all(temporary);
  } else {
    fs::remove_all(final_path);
    fs::rename(temporary, final_path);
  }
}

void write_part(const fs::path& folder, const char* name, std::span<const std::byte> bytes) {
  FileWriter writer(folder / name);
  writer.write(bytes);
  writer.sync_and_close();
}

/// Returns the manifest entry of a part (memory or state): its size and hash.
std::string describe(const char* name, std::span<const std::byte> bytes) {
  return fmt::format("  \"{}\": {{\n   \"bytes\": {},\n   \"xxh3\": \"{}\"\n  }}", name, bytes.size(),
                     hex64(hash64(bytes)));
}

/// Returns a reason if the bytes of a part do not match its manifest entry; nothing if they do.
std::optional<std::string> check_part(const Json& manifest, const char* name,
                                      std::span<const std::byte> bytes) {
  const Json& part = manifest.at("files").at(name);
  if (bytes.size() != part.at("bytes").get<size_t>()) return fmt::format("{} is cut short", name);
  if (part.at("xxh3") != hex64(hash64(bytes))) return fmt::format("{} is damaged", name);
  return std::nullopt;
}

std::optional<std::string> fault_of(const fs::path& path) {
  if (!path_exists(path / kManifest)) return kNoManifest;
  const std::optional<Json> manifest = parse_json<Json>(read_file(path / kManifest));
  if (!manifest) return kDamaged;
  for (const char* name : {kMemory, kState}) {
    if (!path_exists(path / name)) return fmt::format("it has no {}", name);
    const MappedFile file(path / name);
    if (auto fault = check_part(*manifest, name, file.bytes())) return fault;
  }
  return std::nullopt;
}

}  // namespace

CheckpointWriter::CheckpointWriter(fs::path folder, int64_t memory_bytes, int num_kept)
    : folder_(std::move(folder)), num_kept_(num_kept) {
  make_inner_folder(folder_);
  delete_temporary(folder_);
  pending_.memory.resize(static_cast<size_t>(memory_bytes));
  pending_.state.reserve(1 << 16);
  thread_ = std::thread([this] { work(); });
}

CheckpointWriter::~CheckpointWriter() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void CheckpointWriter::rethrow() {
  if (error_ == nullptr) return;
  std::rethrow_exception(std::exchange(error_, nullptr));
}

void CheckpointWriter::save(int64_t step, std::span<const std::byte> memory, std::string_view state) {
  HEARTH_CHECK(memory.size() == pending_.memory.size());
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return pending_step_ < 0; });
    rethrow();
    std::memcpy(pending_.memory.data(), memory.data(), memory.size());
    pending_.state.assign(state);
    pending_step_ = step;
  }
  changed_.notify_all();
}

void CheckpointWriter::check() {
  const std::lock_guard lock(mutex_);
  rethrow();
}

void CheckpointWriter::flush() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return pending_step_ < 0; });
  rethrow();
}

void CheckpointWriter::discard_later(int64_t step) {
  flush();
  const std::vector<fs::path> paths = step_folders(folder_);
  const auto is_older = [&](const fs::path& path) {
    return *step_of(path) <= step && !check_checkpoint(path);
  };
  if (std::ranges::none_of(paths, is_older)) return;
  for (const fs::path& path : paths) {
    if (*step_of(path) > step) delete_folder(path);
  }
}

void CheckpointWriter::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stopping_ || pending_step_ >= 0; });
    if (pending_step_ < 0) return;
    const int64_t step = pending_step_;
    lock.unlock();
    std::exception_ptr error;
    try {
      write(step);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (error != nullptr) error_ = error;
    pending_step_ = -1;
    changed_.notify_all();
  }
}

void CheckpointWriter::write(int64_t step) {
  const fs::path temporary = folder_ / (".tmp-" + step_name(step));
  const fs::path final_path = folder_ / step_name(step);
  std::error_code ignored;
  fs::remove_all(temporary, ignored);
  try {
    // Does not create parent folders, so that a run folder that was moved away does not appear again.
    fs::create_directory(temporary);
    write_part(temporary, kMemory, pending_.memory);
    write_part(temporary, kState, std::as_bytes(std::span(pending_.state)));
    const std::string manifest = make_manifest(step, pending_.memory, pending_.state);
    write_part(temporary, kManifest, std::as_bytes(std::span(manifest)));
    sync_folder(temporary);
    move_to_final_path(temporary, final_path);
    sync_folder(folder_);
  } catch (const fs::filesystem_error& error) {
    fs::remove_all(temporary, ignored);
    user_error("cannot write the checkpoint {}: {}", final_path.string(), error.code().message());
  } catch (...) {
    fs::remove_all(temporary, ignored);
    throw;
  }
  delete_others(step);
}

void CheckpointWriter::delete_others(int64_t step) const {
  std::error_code ignored;
  int num_left = 0;
  for (const fs::path& path : step_folders(folder_)) {
    if (*step_of(path) > step) {
      // A damaged checkpoint of a later step was skipped when the run resumed, so it is deleted. A complete
      // one belongs to another run.
      if (check_checkpoint(path)) delete_folder(path);
      continue;
    }
    if (fs::exists(path / kManifest, ignored) && num_left < num_kept_) {
      ++num_left;
    } else {
      delete_folder(path);
    }
  }
}

// Formats the text directly, because building a JSON tree would abort the program if memory is exhausted.
std::string make_manifest(int64_t step, std::span<const std::byte> memory, std::string_view state) {
  return fmt::format("{{\n \"files\": {{\n{},\n{}\n }},\n \"step\": {}\n}}", describe(kMemory, memory),
                     describe(kState, std::as_bytes(std::span(state))), step);
}

std::optional<std::string> check_parts(const std::string& manifest, std::span<const std::byte> memory,
                                       std::string_view state) {
  try {
    const std::optional<Json> parsed = parse_json<Json>(manifest);
    if (!parsed) return kDamaged;
    if (auto fault = check_part(*parsed, kMemory, memory)) return fault;
    return check_part(*parsed, kState, std::as_bytes(std::span(state)));
  } catch (const Json::exception&) {
    return kDamaged;
  }
}

std::optional<std::string> check_checkpoint(const fs::path& path) {
  try {
    return fault_of(path);
  } catch (const Json::exception&) {
    return kDamaged;
  } catch (const UserError&) {
    // If reading failed because another process is deleting the checkpoint, its manifest is gone already.
    if (!path_exists(path / kManifest)) return kNoManifest;
    throw;
  }
}

std::optional<FoundCheckpoint> find_newest_checkpoint(const fs::path& folder,
                                                      std::vector<std::string>* refused) {
  FoundCheckpoint found;
  for (const fs::path& path : step_folders(folder)) {
    if (const auto fault = check_checkpoint(path)) {
      found.refused.push_back(fmt::format("{}: {}", path.filename().string(), *fault));
      if (refused != nullptr) refused->push_back(found.refused.back());
      continue;
    }
    found.path = path;
    found.step = *step_of(path);
    return found;
  }
  return std::nullopt;
}

std::vector<CheckpointInfo> list_checkpoints(const fs::path& folder) {
  std::vector<CheckpointInfo> found;
  for (const fs::path& path : step_folders(folder)) {
    CheckpointInfo info{.path = path, .step = *step_of(path), .fault = check_checkpoint(path).value_or("")};
    std::error_code gone, ignored;
    info.written = fs::last_write_time(path, gone);
    if (gone) continue;
    for (const char* name : {kMemory, kState, kManifest}) {
      const auto size = fs::file_size(path / name, ignored);
      if (!ignored) info.num_bytes += static_cast<int64_t>(size);
    }
    found.push_back(std::move(info));
  }
  return found;
}

std::vector<CheckpointInfo> prune_checkpoints(const fs::path& folder, int64_t num_kept) {
  refuse_link(folder);
  std::vector<CheckpointInfo> all = list_checkpoints(folder), deleted;
  const auto is_complete = [](const CheckpointInfo& info) { return info.fault.empty(); };
  if (std::ranges::none_of(all, is_complete)) return deleted;
  for (CheckpointInfo& info : all) {
    if (is_complete(info) && num_kept-- > 0) continue;
    delete_folder(info.path);
    deleted.push_back(std::move(info));
  }
  return deleted;
}

std::string read_state(const fs::path& path) { return read_file(path / kState); }

CheckpointContents read_checkpoint(const fs::path& path) {
  if (const auto fault = check_checkpoint(path)) user_error("{}: {}", path.string(), *fault);
  const MappedFile memory(path / kMemory);
  return {.memory = {memory.bytes().begin(), memory.bytes().end()}, .state = read_file(path / kState)};
}

}  // namespace hearth::io
