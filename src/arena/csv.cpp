#include "arena/csv.h"

#include <fmt/format.h>

#include <charconv>
#include <map>

#include "base/error.h"
#include "base/file.h"

namespace hearth::arena {
namespace {

std::vector<std::string> split(const std::string& line) {
  std::vector<std::string> cells(1);
  for (const char c : line) {
    if (c == ',') {
      cells.emplace_back();
    } else if (c != '\r' && c != ' ') {
      cells.back() += c;
    }
  }
  return cells;
}

int64_t number(const std::vector<std::string>& cells, size_t column, const std::string& where) {
  int64_t value = 0;
  const std::string& text = column < cells.size() ? cells[column] : "";
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0 || value > kMaxProblemBytes) {
    user_error("{}: expected a whole number from 0 to {}, got '{}'", where, kMaxProblemBytes, text);
  }
  return value;
}

}  // namespace

Problem read_csv(const std::filesystem::path& path) {
  Problem problem;
  std::map<std::string, size_t> columns;
  const std::string text = read_file(path);
  size_t begin = 0;
  int64_t total = 0;
  for (int line = 1; begin < text.size(); ++line) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::vector<std::string> cells = split(text.substr(begin, end - begin));
    begin = end + 1;
    const std::string where = fmt::format("{}:{}", path.string(), line);
    if (line == 1) {
      for (size_t i = 0; i < cells.size(); ++i) columns[cells[i]] = i;
      for (const char* name : {"id", "lower", "upper", "size"}) {
        if (!columns.contains(name)) user_error("{}: expected the header id,lower,upper,size", where);
      }
      continue;
    }
    if (cells.size() == 1 && cells[0].empty()) continue;
    Buffer buffer{.lower = number(cells, columns["lower"], where),
                  .upper = number(cells, columns["upper"], where),
                  .size = number(cells, columns["size"], where),
                  .id = columns["id"] < cells.size() ? cells[columns["id"]] : ""};
    if (buffer.lower >= buffer.upper)
      user_error("{}: expected lower < upper, got {} and {}", where, buffer.lower, buffer.upper);
    if (buffer.size > kMaxProblemBytes - total)
      user_error("{}: the sizes add up to more than {} bytes", where, kMaxProblemBytes);
    total += buffer.size;
    problem.buffers.push_back(std::move(buffer));
  }
  if (columns.empty())
    user_error("{}: expected the header id,lower,upper,size, the file is empty", path.string());
  return problem;
}

std::string write_csv(const Problem& problem, const Solution& solution) {
  std::string text = "id,lower,upper,size,offset\n";
  for (size_t i = 0; i < problem.buffers.size(); ++i) {
    const Buffer& buffer = problem.buffers[i];
    text += fmt::format("{},{},{},{},{}\n", buffer.id, buffer.lower, buffer.upper, buffer.size,
                        solution.offsets[i]);
  }
  return text;
}

}  // namespace hearth::arena
