#include "planted.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>
#include <stdexcept>

#include "paths.h"

namespace hearth::doctor {
namespace {

using Values = std::map<std::string, std::string>;

std::string replaced(std::string text, const Values& values) {
  for (const auto& [name, value] : values) {
    const std::string mark = "${" + name + "}";
    for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark))
      text.replace(at, mark.size(), value);
  }
  if (text.find("${") != std::string::npos) throw std::runtime_error("no value for: " + text);
  return text;
}

std::string unescaped(std::string text) {
  for (size_t at = text.find("\\n"); at != std::string::npos; at = text.find("\\n"))
    text.replace(at, 2, "\n");
  for (size_t at = text.find("\\0"); at != std::string::npos; at = text.find("\\0"))
    text.replace(at, 2, std::string(1, '\0'));
  return text;
}

class Planter {
 public:
  explicit Planter(fs::path root) : root_(std::move(root)) {}
  void read(const fs::path& file, const Values& values) {
    std::istringstream lines(read_file(file));
    for (std::string line; std::getline(lines, line);)
      if (!line.empty() && line[0] != '#') plant_line(file, replaced(line, values));
  }
  PlantedMachine machine;

 private:
  void plant_line(const fs::path& file, const std::string& line) {
    std::istringstream words(line);
    std::string first, second;
    words >> first >> second;
    if (first == "use") {
      use(file, second, words);
    } else if (first == "expect") {
      machine.expected.push_back(line.substr(7));
    } else if (first == "status") {
      machine.status = std::stoi(second);
    } else if (first == "remove") {
      fs::remove_all(root_ / second);
    } else {
      plant_file(root_ / first, second, words);
    }
  }
  void use(const fs::path& file, const std::string& part, std::istringstream& words) {
    Values values;
    for (std::string word; words >> word;)
      values[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
    read(file.parent_path() / (part + ".part"), values);
  }
  void plant_file(const fs::path& path, const std::string& kind, std::istringstream& words) {
    fs::create_directories(path.parent_path());
    std::string rest;
    std::getline(words >> std::ws, rest);
    if (kind == "=") {
      write(path, unescaped(rest) + "\n");
    } else if (kind == "->") {
      fs::create_symlink(rest, path);
    } else if (kind == "hex") {
      std::istringstream bytes(rest);
      std::string text;
      for (std::string byte; bytes >> byte;) text += static_cast<char>(std::stoi(byte, nullptr, 16));
      write(path, text);
    } else if (kind == "fifo") {
      if (mkfifo(path.c_str(), 0600) != 0) throw std::runtime_error("no pipe at " + path.string());
    } else if (kind == "huge") {
      write(path, "");
      fs::resize_file(path, std::stoull(rest));
    } else if (kind == "mode") {
      permit(path, rest);
    } else {
      throw std::runtime_error("expected =, ->, hex, fifo, huge or mode, got " + kind);
    }
  }
  void permit(const fs::path& path, const std::string& text) {
    std::istringstream words(text);
    std::string mode, group;
    unsigned number = 0;
    words >> mode >> group >> number;
    chmod(path.c_str(), static_cast<mode_t>(std::stoi(mode, nullptr, 8)));
    // Root's, whoever plants it.
    if (chown(path.c_str(), 0, number) != 0) machine.owns_groups = false;
  }
  static void write(const fs::path& path, std::string_view text) {
    fs::remove(path);
    FileWriter writer(path);
    writer.write(text);
  }

  fs::path root_;
};

}  // namespace

PlantedMachine plant(const fs::path& description, const fs::path& root) {
  Planter planter(root);
  planter.read(description, {});
  return planter.machine;
}

fs::path machines_folder() { return fs::path(kSourceDir) / "tests/doctor/machines"; }

std::vector<std::string> machine_names() {
  std::vector<std::string> names;
  for (const fs::path& file : list_folder(machines_folder()))
    if (file.extension() == ".machine") names.push_back(file.stem().string());
  std::ranges::sort(names);
  return names;
}

}  // namespace hearth::doctor
