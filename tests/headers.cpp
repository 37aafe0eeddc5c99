// What tests/CMakeLists.txt compiles once for all tests belongs to this source.
