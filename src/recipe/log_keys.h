#pragma once

#include <vector>

#include "recipe/field.h"
#include "recipe/key_locations.h"

/// Keys of loggers: their rows in the table of fields.cpp, and their checks.
namespace hearth::recipe {

void add_log_fields(std::vector<Field>& fields);
/// Throws a UserError if log.webhook is neither a URL nor env:NAME.
void check_log(const Recipe& recipe, const KeyLocations& locations);

}  // namespace hearth::recipe
