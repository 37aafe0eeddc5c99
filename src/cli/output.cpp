#include "cli/output.h"

#include <iostream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"

namespace hearth::cli {

void print_json(const Json& document) {
  const std::string text = document.dump(-1, ' ', true, Json::error_handler_t::replace) + "\n";
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void answer_requests(const std::function<Json(const Json& request)>& answer) {
  int64_t number = 0;
  for (std::string line; std::getline(std::cin, line);) {
    try {
      print_json(answer(parse_json_object<Json>(line, fmt::format("standard input:{}", ++number))));
    } catch (const UserError& error) {
      print_json({{"error", error.what()}});
    } catch (const Json::exception& error) {
      print_json({{"error", fmt::format("standard input:{}: {}", number, error.what())}});
    }
  }
}

}  // namespace hearth::cli
