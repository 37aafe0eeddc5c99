#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/choices.h"
#include "text/faults.h"
#include "text/jinja.h"

namespace hearth::text {

/// Options of reading records.
struct FormatOptions {
  RecordFormat format = RecordFormat::detect;
  /// Renamed fields: pairs of Hearth's name of a field and its name in the file. Hearth's names are text,
  /// prompt, completion, instruction, input, output, system, history, messages, role, content, tools, chosen
  /// and rejected. For a renamed field, the names that are known by default are not tried.
  std::vector<std::pair<std::string, std::string>> fields = {};
};

/// A training record in a common form, independent of its format in the file.
struct Record {
  RecordFormat format = RecordFormat::text;
  std::string text = {};  ///< text of a record in RecordFormat::text
  /// Messages {role, content, ...} as chat templates expect them, with roles system, user, assistant and
  /// tool. Of a preference record: the messages before the answers.
  Json messages = Json::array();
  Json chosen = Json::array();  ///< preference records: messages of the preferred answer
  Json rejected = Json::array();
  Json tools = nullptr;
};

/// Throws a UserError for an unknown field name.
void check_format_options(const FormatOptions& options);

/// Converts a record to the common form. Throws a RecordError for missing fields, an unknown role, an empty
/// or missing assistant turn, content other than text (such as images), a malformed function call, an answer
/// labeled false, or fields of no known format.
Record read_record(const Json& object, const FormatOptions& options);

/// True if a message has a nonempty list of tool calls.
bool has_tool_calls(const Json& message);

/// True if a message of the assistant counts in the loss: it has no `weight: 0` or `loss_weight: 0`.
bool is_trained(const Json& message);

}  // namespace hearth::text
