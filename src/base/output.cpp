#include "base/output.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>

#include "base/error.h"

namespace hearth {
namespace {

/// Base name of the temporary folder that is created inside an existing empty folder.
constexpr const char* kNoName = "new";

/// Returns the absolute path without a trailing slash.
fs::path plain_path(const fs::path& path) {
  return (fs::absolute(path) / ".").lexically_normal().parent_path();
}

/// Returns the lowest existing folder above the path.
fs::path folder_above(fs::path path) {
  do path = path.parent_path();
  while (!path_exists(path) && path.has_relative_path());
  return path;
}

/// Extensions of weights and images. A path with one of them is probably a file name given for an output
/// folder.
constexpr auto kFileEndings =
    std::to_array<std::string_view>({".safetensors", ".pt", ".pth", ".bin", ".ckpt", ".onnx", ".gguf", ".h5",
                                     ".zip", ".png", ".jpg", ".json"});

void refuse_file_name(const fs::path& path) {
  if (std::ranges::find(kFileEndings, path.extension().string()) == kFileEndings.end()) return;
  user_error(
      "'{}' is the name of a file, but the output is a folder; use --out {}, or a --format that writes a "
      "file",
      path.string(), fs::path(path).replace_extension().string());
}

/// Returns true if the path is an existing empty folder, false if it does not exist; otherwise UserError.
bool expect_free(const fs::path& path) {
  std::error_code code;
  if (fs::symlink_status(path, code).type() == fs::file_type::not_found) return false;
  const bool is_folder = fs::is_directory(path, code);
  if (is_folder) delete_leftovers(path / kNoName);
  if (is_folder && list_folder(path).empty()) return true;
  user_error("cannot write to '{}', {}; use a new or empty folder for --out", path.string(),
             is_folder ? "which has files in it" : "which exists and is not a folder");
}

}  // namespace

void check_writable_file(const fs::path& path) {
  std::error_code unknown;
  const fs::file_status status = fs::status(path, unknown);
  if (fs::is_character_file(status) || fs::is_fifo(status)) return;
  if (fs::exists(status) && !fs::is_regular_file(status))
    user_error("cannot write a file at {}: it is {}; use another name", path.string(),
               fs::is_directory(status) ? "a folder" : "not a regular file");
  // Tests by creating a file, because permission bits do not reflect read-only mounts and quotas.
  const Temporary tried(path, Temporary::Kind::file);
}

void check_writable_folder(const fs::path& folder) {
  const fs::path path = plain_path(folder);
  const fs::path found = path_exists(path) ? path : folder_above(path);
  if (!fs::is_directory(found))
    user_error("cannot write to {}: {} is not a folder; use another --out", folder.string(), found.string());
  const Temporary tried(found / kNoName, Temporary::Kind::folder, folder);
}

NewFolder::NewFolder(const fs::path& path) : path_(plain_path(path)), was_there_(expect_free(path_)) {
  if (!was_there_) refuse_file_name(path);
  check_writable_folder(path);
  for (fs::path above = path_.parent_path(); !path_exists(above); above = above.parent_path())
    made_.push_back(above);
  make_folder(path_.parent_path());
  temporary_.emplace(was_there_ ? path_ / kNoName : path_, Temporary::Kind::folder);
  // The output is written to a subfolder with default permissions, because the temporary folder is readable
  // by its owner only.
  contents_ = temporary_->path() / path_.filename();
  if (mkdir(contents_.c_str(), 0777) != 0) refuse_to_write(path, errno);
}

NewFolder::~NewFolder() {
  temporary_.reset();
  std::error_code ignored;
  // Removes the parent folders that this object created, unless another program has put files there since.
  for (const fs::path& folder : made_) fs::remove(folder, ignored);
}

void NewFolder::commit() {
  sync_folder(contents_);
  std::error_code code;
  if (!was_there_) {
    fs::rename(contents_, path_, code);
  } else {
    if (list_folder(path_).size() > 1)
      user_error("the folder {} is no longer empty: another program wrote to it; use another --out",
                 path_.string());
    for (const fs::path& entry : list_folder(contents_)) {
      if (!code) fs::rename(entry, path_ / entry.filename(), code);
    }
  }
  if (code) user_error("cannot put the new folder in place at {}: {}", path_.string(), code.message());
  made_.clear();
  temporary_.reset();
  sync_folder(was_there_ ? path_ : path_.parent_path());
}

}  // namespace hearth
