// Package scripts holds what builds, checks and releases the modules. It is a module of its
// own, which is never published and requires nothing.
package scripts
