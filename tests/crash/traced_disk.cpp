#include "traced_disk.h"

#include <fstream>
#include <sstream>
#include <stdexcept>

namespace hearth {
namespace {

std::string from_hex(const std::string& digits) {
  std::string bytes;
  for (size_t i = 0; i + 1 < digits.size(); i += 2)
    bytes += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  return bytes;
}

/// `flushed` is the beginning of `now`, unless the file was emptied since.
std::string bytes_left(const std::string& now, const std::string& flushed, Bytes bytes,
                       std::mt19937_64& random) {
  if (now == flushed) return now;
  if (bytes == Bytes::some) bytes = static_cast<Bytes>(random() % 3);
  if (bytes == Bytes::lost || !now.starts_with(flushed)) return flushed;
  if (bytes == Bytes::half) return now.substr(0, flushed.size() + (now.size() - flushed.size()) / 2);
  return flushed + std::string(now.size() - flushed.size(), '\0');
}

}  // namespace

TracedDisk::TracedDisk(fs::path root) : root_(std::move(root)) { load(root_); }

int TracedDisk::add(Node node) {
  nodes_.push_back(std::move(node));
  return static_cast<int>(nodes_.size()) - 1;
}

int TracedDisk::load(const fs::path& path) {
  const bool is_folder = fs::is_directory(path);
  const int number = add({.is_folder = is_folder});
  if (!is_folder) {
    Node& node = nodes_[static_cast<size_t>(number)];
    node.now = node.flushed = read_file(path);
    return number;
  }
  for (const auto& entry : fs::directory_iterator(path)) {
    const int child = load(entry.path());
    nodes_[static_cast<size_t>(number)].entries[entry.path().filename().string()] = child;
  }
  flush(nodes_[static_cast<size_t>(number)]);
  return number;
}

int TracedDisk::find(const fs::path& path) const {
  int number = 0;
  for (const fs::path& name : path.lexically_relative(root_)) {
    if (name == ".") continue;
    const auto& entries = nodes_[static_cast<size_t>(number)].entries;
    const auto found = entries.find(name.string());
    if (found == entries.end()) return -1;
    number = found->second;
  }
  return number;
}

void TracedDisk::change(const fs::path& path, Change change) {
  Node& folder = nodes_.at(static_cast<size_t>(find(path.parent_path())));
  for (const auto& [name, node] : change) {
    if (node < 0) {
      folder.entries.erase(name);
    } else {
      folder.entries[name] = node;
    }
  }
  folder.unflushed.push_back(std::move(change));
}

void TracedDisk::create(const fs::path& path) {
  const int found = find(path);
  if (found >= 0) {
    nodes_[static_cast<size_t>(found)].now.clear();
  } else {
    change(path, {{path.filename().string(), add({})}});
  }
}

void TracedDisk::flush(Node& node) {
  node.flushed = node.now;
  node.flushed_entries = node.entries;
  node.unflushed.clear();
}

void TracedDisk::play(const std::string& call) {
  std::istringstream words(call);
  std::string what, first, second;
  words >> what >> first >> second;
  const fs::path path = first, other = second;
  const std::string name = path.filename().string();
  if (what == "create") {
    create(path);
  } else if (what == "write") {
    nodes_.at(static_cast<size_t>(find(path))).now += from_hex(second);
  } else if (what == "fsync") {
    flush(nodes_.at(static_cast<size_t>(find(path))));
  } else if (what == "folder") {
    change(path, {{name, add({.is_folder = true})}});
  } else if (what == "remove") {
    change(path, {{name, -1}});
  } else if (what == "rename" && path.parent_path() == other.parent_path()) {
    change(path, {{other.filename().string(), find(path)}, {name, -1}});
  } else if (what == "exchange" && path.parent_path() == other.parent_path()) {
    change(path, {{other.filename().string(), find(path)}, {name, find(other)}});
  } else {
    throw std::runtime_error("no call that is known: " + call);
  }
}

TracedDisk::Files TracedDisk::cut(Entries entries, Bytes bytes, std::mt19937_64& random) const {
  Files files;
  collect(0, "", entries, bytes, random, files);
  return files;
}

void TracedDisk::collect(int number, const std::string& path, Entries entries, Bytes bytes,
                         std::mt19937_64& random, Files& files) const {
  const Node& node = nodes_[static_cast<size_t>(number)];
  if (!node.is_folder) {
    files[path] = bytes_left(node.now, node.flushed, bytes, random);
    return;
  }
  if (!path.empty()) files[path] = std::nullopt;
  std::map<std::string, int> left = node.flushed_entries;
  for (const Change& change : node.unflushed) {
    if (entries == Entries::lost || (entries == Entries::some && random() % 2 == 0)) continue;
    for (const auto& [name, child] : change) {
      if (child < 0) {
        left.erase(name);
      } else {
        left[name] = child;
      }
    }
  }
  for (const auto& [name, child] : left)
    collect(child, path.empty() ? name : path + "/" + name, entries, bytes, random, files);
}

void write_files(const TracedDisk::Files& files, const fs::path& folder) {
  fs::create_directories(folder);
  for (const auto& [path, contents] : files) {
    if (contents) {
      std::ofstream(folder / path, std::ios::binary) << *contents;
    } else {
      fs::create_directory(folder / path);
    }
  }
}

}  // namespace hearth
