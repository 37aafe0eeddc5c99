#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/choices.h"
#include "text/faults.h"
#include "text/jinja.h"

namespace hearth::text {

struct FormatOptions {
  RecordFormat format = RecordFormat::detect;
  /// A field's name here and its name in the file (text, prompt, completion, instruction, input, output,
  /// system, history, messages, role, content, tools, chosen, rejected). It takes the place of the known
  /// aliases.
  std::vector<std::pair<std::string, std::string>> fields = {};
};

/// A record in one form, whatever it was written in.
struct Record {
  RecordFormat format = RecordFormat::text;
  std::string text = {};  ///< text of a record in RecordFormat::text
  /// Objects {role, content, ...} as templates expect them, roles system, user, assistant and tool. For
  /// preferences what both answers share.
  Json messages = Json::array();
  Json chosen = Json::array();  ///< preference: the messages that follow
  Json rejected = Json::array();
  Json tools = nullptr;
};

/// Checks options: UserError for an unknown field name.
void check_format_options(const FormatOptions& options);

/// Reads a record. RecordError for fields that are missing, an unknown role, a turn of the assistant that is
/// empty or lacking, images and other parts than text, a function call that is none, an answer that is
/// labeled as bad, or fields of no known format.
Record read_record(const Json& object, const FormatOptions& options);

/// Whether a message has tool calls: a list that is not empty.
bool has_tool_calls(const Json& message);

/// Whether a message is the assistant's and not excluded by `weight: 0` or `loss_weight: 0`.
bool is_trained(const Json& message);

}  // namespace hearth::text
